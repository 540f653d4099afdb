import type { CallFormat } from "./format.ts";
import { jsonCallList, readJsonCalls } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/** Nemotron Nano 2: `<TOOLCALL>[{"name": "f", "arguments": {…}}]</TOOLCALL>`. */
export const nemotron: CallFormat = {
  name: "nemotron",
  recognises: (source) => source.includes("<TOOLCALL>"),
  syntax(marks) {
    const [begin, end] = [marks.mark("<TOOLCALL>"), marks.mark("</TOOLCALL>")];
    return markedSyntax({
      begin,
      others: [end],
      rest: (lark, { tools, many }) => `${jsonCallList(lark, tools, many)} ${lark.mark(end)}`,
      *readRest(input, answer) {
        yield* readJsonCalls(input, answer);
        yield* input.until([end], () => {}); // nothing, in a well-formed answer
      },
    });
  },
};
