import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import { type Parameter, parameterList, type Value, writtenParameters } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import { readItems, readLooseValue } from "./loose_value.ts";

/** Spelling of values: JSON, or Python's True and False. */
export type Words = "JSON" | "Python";

/** Returns the grammar of a tool call in Python's syntax: `f(p="text", q=1)`. */
export function pythonCall(lark: LarkGrammar, tools: readonly CheckedTool[], words: Words): string {
  return lark.rule(oneOf(tools.map((tool) => toolCall(lark, tool, words))));
}

function toolCall(lark: LarkGrammar, tool: CheckedTool, words: Words): string {
  const write = ({ name, value }: Parameter) => `${lark.text(`${name}=`)} ${writeValue(lark, value, words)}`;
  const parameters = writtenParameters(lark, tool, (name) => /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name));
  const list = parameterList(parameters, '", "', write, (expression) => lark.rule(expression));
  return `${lark.text(`${tool.name}(`)} ${list} ")"`;
}

function writeValue(lark: LarkGrammar, value: Value, words: Words): string {
  switch (value.kind) {
    case "boolean":
      return words === "Python" ? '("True" | "False")' : '("true" | "false")';
    case "text":
      return lark.part({ kind: "json_schema", schema: { type: "string" } });
    case "choice":
      return lark.part({ kind: "json_schema", schema: { enum: value.choices } });
    default:
      return lark.part(value.form);
  }
}

/**
 * Reads a tool call in Python's syntax, with values in JSON or Python. Returns false if it is missing or incomplete.
 */
export function* readPythonCall(input: Input, answer: Answer): Reading<boolean> {
  const name = yield* input.characters(/[^(\s,\]<\p{Surrogate}]/u);
  if (name === "" || !(yield* input.accept(["("]))) return false;
  const call = answer.call(name);
  const emit = (json: string) => answer.args(call, json);
  emit("{");
  return yield* readItems(input, emit, ")", () => readArgument(input, emit), "}");
}

function* readArgument(input: Input, emit: (json: string) => void): Reading<boolean> {
  const name = yield* input.characters(/[^=,)\p{Surrogate}]/u);
  if (!(yield* input.accept(["="]))) return false;
  emit(`${JSON.stringify(name.trim())}: `);
  return yield* readLooseValue(input, emit);
}
