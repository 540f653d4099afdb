import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import { argumentsForm, type CheckedTool } from "../tools.ts";

/** Returns the grammar of a tool call: a JSON object in `json.dumps` spelling: `{"name": "f", "arguments": {…}}`. */
export function jsonCall(
  lark: LarkGrammar,
  tools: readonly CheckedTool[],
  argumentsKey = "arguments",
): string {
  const calls = tools.map((tool) => {
    const { name } = tool;
    const head = lark.text(`{"name": ${JSON.stringify(name)}, "${argumentsKey}": `);
    return `${head} ${lark.part(argumentsForm(tool))} "}"`;
  });
  return lark.rule(calls.join(" | "));
}

/** Returns the grammar of a list of tool calls: `[{…}, {…}]`. */
export function jsonCallList(lark: LarkGrammar, tools: readonly CheckedTool[], many: boolean): string {
  const call = jsonCall(lark, tools);
  return `"[" ${call} ${many ? `(", " ${call})*` : ""} "]"`;
}

/** Reads a tool call that is a JSON object. Returns false if it is missing or incomplete. */
export function* readJsonCall(input: Input, answer: Answer): Reading<boolean> {
  if (!(yield* input.accept(["{"]))) return false;
  let index: number | undefined;
  let early = "";
  let some = false;
  for (;;) {
    yield* input.blank();
    const key = yield* input.string();
    if (key === undefined) break;
    yield* input.blank();
    if (!(yield* input.accept([":"]))) return false;
    yield* input.blank();
    if ((key === "name" || key === "tool_name") && index === undefined) {
      const name = yield* input.string();
      if (name === undefined) return false;
      index = answer.call(name);
      answer.args(index, early);
    } else if ((key === "arguments" || key === "parameters") && !some) {
      some = true;
      const take = (text: string) => index === undefined ? void (early += text) : answer.args(index, text);
      if (!(yield* input.json(take))) return false;
    } else if (!(yield* input.json(() => {}))) return false;
    yield* input.blank();
    if (!(yield* input.accept([","]))) break;
  }
  const whole = (yield* input.accept(["}"])) !== undefined;
  // A complete call without arguments gets `{}`. A truncated call gets nothing.
  if (whole && index !== undefined && !some) answer.args(index, "{}");
  return whole;
}

/** Reads one tool call or a list of calls in JSON. Returns false if it is missing or incomplete. */
export function* readJsonCalls(input: Input, answer: Answer): Reading<boolean> {
  yield* input.blank();
  if (!(yield* input.accept(["["]))) return yield* readJsonCall(input, answer);
  for (;;) {
    yield* input.blank();
    if (!(yield* readJsonCall(input, answer))) return false;
    yield* input.blank();
    if (!(yield* input.accept([","]))) return (yield* input.accept(["]"])) !== undefined;
  }
}
