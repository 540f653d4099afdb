import { type LarkGrammar, oneOf } from "../lark.ts";
import { contentGrammar, findAround } from "../thinking.ts";
import { argumentsForm } from "../tools.ts";
import type { AnswerShape, CallFormat } from "./format.ts";
import { readJsonCalls } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/**
 * Cohere's Command R7B and A: `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters":
 * {…}}]<|END_ACTION|>`. The id is the call's number in the conversation. An answer is a list of calls, or
 * text between marks (thinking.ts).
 */
export const cohere: CallFormat = {
  name: "cohere",
  recognises: (source) => source.includes("<|START_ACTION|>"),
  syntax(marks, source) {
    const [begin, end] = [marks.mark("<|START_ACTION|>"), marks.mark("<|END_ACTION|>")];
    const around = findAround(source, marks);
    const syntax = markedSyntax({
      begin,
      others: [end],
      rest: (lark, shape) => `${callList(lark, shape)} ${lark.mark(end)}`,
      *readRest(input, answer) {
        yield* readJsonCalls(input, answer);
        yield* input.until([end], () => {}); // a line break, in a well-formed answer
      },
    });
    return {
      ...syntax,
      body(lark, shape) {
        if (shape.required || shape.content !== undefined) return syntax.body(lark, shape);
        const calls = syntax.body(lark, { ...shape, required: true });
        return `(${calls} | ${contentGrammar(lark, around, lark.anything)})`;
      },
    };
  },
};

/** Returns the grammar of a list of tool calls, each on its own line, as in the templates. */
function callList(lark: LarkGrammar, { tools, many }: AnswerShape): string {
  const named = oneOf(tools.map((tool) => {
    const head = lark.text(`", "tool_name": ${JSON.stringify(tool.name)}, "parameters": `);
    return lark.rule(`${head} ${lark.part(argumentsForm(tool))}`);
  }));
  const call = lark.rule(`${lark.text('\n    {"tool_call_id": "')} /[0-9]{1,4}/ ${named} "}"`);
  return `"[" ${call} ${many ? `("," ${call})*` : ""} "\\n]"`;
}
