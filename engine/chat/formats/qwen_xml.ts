import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { readXmlCall, xmlCall, type XmlTags } from "./xml_call.ts";

/**
 * Qwen3-Coder, Qwen3.5 and Nemotron: `<function=f><parameter=p>value</parameter></function>`. Seed-OSS uses
 * other marks.
 */
export const qwenXml: CallFormat = {
  name: "qwen-xml",
  recognises: (source) => source.includes("<function=") && source.includes("<parameter="),
  syntax(marks, source) {
    const isSeed = source.includes("<seed:tool_call>");
    const tag = isSeed ? "seed:tool_call" : "tool_call";
    const tags: XmlTags = {
      call: ["<function=", ">", "</function>"],
      parameter: ["<parameter=", ">"],
      line: isSeed ? "" : "\n",
    };
    const [begin, end] = [marks.mark(`<${tag}>`), marks.mark(`</${tag}>`)];
    return markedSyntax({
      begin,
      others: [end],
      rest(lark, { tools, many }) {
        const call = lark.rule(`"\\n" ${xmlCall(lark, tools, tags)} "\\n" ${lark.mark(end)}`);
        return many ? `${call} (${lark.blank} ${lark.mark(begin)} ${call})*` : call;
      },
      *readRest(input, answer, tools) {
        yield* input.blank();
        yield* readXmlCall(input, answer, tools, tags, marks);
        yield* input.until([end], () => {});
      },
    });
  },
};
