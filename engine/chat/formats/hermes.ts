import type { BodySyntax, CallFormat } from "./format.ts";
import type { Marks } from "../marks.ts";
import { jsonCall, readJsonCall } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/**
 * Hermes, Qwen 2.5 and 3, and many others: `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`;
 * EXAONE 4 without the line breaks.
 */
export const hermes: CallFormat = {
  name: "hermes",
  // Apriel's templates mention this tag, but write lists of calls in another tag.
  recognises: (source) =>
    source.includes("<tool_call>") && /\\?"arguments\\?"/.test(source) && !source.includes("<tool_calls>["),
  syntax: (marks, source) => hermesSyntax(marks, isInline(source) ? "" : "\n"),
};

/**
 * Returns whether calls are on the same line as their tags. Some templates request one line, but show earlier calls on
 * separate lines.
 */
function isInline(source: string): boolean {
  return source.includes("<tool_call>{") && !/<tool_call>(\n|\\n)/.test(source);
}

/** Returns the Hermes syntax, with `line` between a call and its tags. */
export function hermesSyntax(marks: Marks, line = "\n"): BodySyntax {
  const [begin, end] = [marks.mark("<tool_call>"), marks.mark("</tool_call>")];
  return markedSyntax({
    begin,
    others: [end],
    rest(lark, { tools, many }) {
      const around = line && lark.text(line);
      const call = lark.rule(`${around} ${jsonCall(lark, tools)} ${around} ${lark.mark(end)}`);
      return many ? `${call} (${lark.blank} ${lark.mark(begin)} ${call})*` : call;
    },
    *readRest(input, answer) {
      yield* input.blank();
      yield* readJsonCall(input, answer);
      yield* input.until([end], () => {}); // only blanks, in a well-formed answer
    },
  });
}
