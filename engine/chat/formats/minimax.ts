import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { readXmlCall, xmlCall, type XmlTags } from "./xml_call.ts";

const TAGS: XmlTags = {
  call: ['<invoke name="', '">', "</invoke>"],
  parameter: ['<parameter name="', '">'],
  line: "",
};

/**
 * MiniMax M2: `<minimax:tool_call><invoke name="f"><parameter
 * name="p">value</parameter></invoke></minimax:tool_call>`, with line breaks.
 */
export const minimax: CallFormat = {
  name: "minimax",
  recognises: (source) => source.includes("<minimax:tool_call>"),
  syntax(marks) {
    const [begin, end] = [marks.mark("<minimax:tool_call>"), marks.mark("</minimax:tool_call>")];
    return markedSyntax({
      begin,
      others: [end],
      rest(lark, { tools, many }) {
        const call = lark.rule(`${xmlCall(lark, tools, TAGS)} "\\n"`);
        return `"\\n" ${call} ${many ? `(${call})*` : ""} ${lark.mark(end)}`;
      },
      *readRest(input, answer, tools) {
        do yield* input.blank(); while (yield* readXmlCall(input, answer, tools, TAGS, marks));
        yield* input.until([end], () => {}); // nothing, in a well-formed answer
      },
    });
  },
};
