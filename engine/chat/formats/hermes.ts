import type { BodySyntax, CallFormat } from "./format.ts";
import type { Marks } from "../marks.ts";
import { jsonCall, readJsonCall } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/** Hermes, Qwen 2.5 and 3, and many others: `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`. */
export const hermes: CallFormat = {
  name: "hermes",
  // Apriel's speak of the tag, and write lists of calls in another.
  recognises: (source) =>
    source.includes("<tool_call>") && /\\?"arguments\\?"/.test(source) && !source.includes("<tool_calls>["),
  syntax: hermesSyntax,
};

export function hermesSyntax(marks: Marks): BodySyntax {
  const [begin, end] = [marks.mark("<tool_call>"), marks.mark("</tool_call>")];
  return markedSyntax({
    begin,
    others: [end],
    rest(lark, { tools, many }) {
      const call = lark.rule(`"\\n" ${jsonCall(lark, tools)} "\\n" ${lark.mark(end)}`);
      return many ? `${call} (${lark.blank} ${lark.mark(begin)} ${call})*` : call;
    },
    *readRest(input, answer) {
      yield* input.blank();
      yield* readJsonCall(input, answer);
      yield* input.until([end], () => {}); // nothing but blanks in an answer that kept to its form
    },
  });
}
