import { ConstraintError } from "../../grammar/types.ts";
import type { Answer } from "../answer.ts";
import { callsAsText, type MadeCall } from "../history.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import { type Parameter, parameterList, parametersOf, type Value } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { readJsonCall } from "./json_call.ts";
import { readItems, readLooseValue } from "./loose_value.ts";
import { markedSyntax } from "./marked.ts";

/** What templates of LFM2 have, or where they leave the calls of earlier turns to the content, of LFM2.5. */
const SIGNS = ["<|tool_call_start|>", "<|tool_list_start|>", '"List of tools: ["'];

/** LFM2: a list of calls as in Python, `<|tool_call_start|>[f(p="text", q=1)]<|tool_call_end|>`. */
export const lfm2: CallFormat = {
  name: "lfm2",
  recognises: (source) => SIGNS.some((sign) => source.includes(sign)),
  syntax(marks, source) {
    const [begin, end] = [marks.mark("<|tool_call_start|>"), marks.mark("<|tool_call_end|>")];
    return markedSyntax({
      begin,
      others: [end],
      // The older templates show no calls.
      messages: source.includes("tool_calls")
        ? undefined
        : (messages) =>
          callsAsText(messages, begin.text, end.text, (calls) => `[${calls.map(callInPython).join(", ")}]`),
      rest(lark, { tools, many }) {
        const call = lark.rule(tools.map((tool) => toolCall(lark, tool)).join(" | "));
        return `"[" ${call} ${many ? `(", " ${call})*` : ""} "]" ${lark.mark(end)}`;
      },
      *readRest(input, answer) {
        yield* input.blank();
        if (yield* input.accept(["["])) yield* readItems(input, () => {}, "]", () => readCall(input, answer));
        yield* input.until([end], () => {});
      },
    });
  },
};

function toolCall(lark: LarkGrammar, tool: CheckedTool): string {
  const write = ({ name, value }: Parameter) => {
    if (!/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name)) {
      throw new ConstraintError(
        `Cannot use the tool ${
          JSON.stringify(tool.name)
        }: this model's calls cannot write the parameter's name ` +
          JSON.stringify(name.slice(0, 80)),
      );
    }
    return `${lark.text(`${name}=`)} ${writeValue(lark, value)}`;
  };
  const list = parameterList(parametersOf(tool), '", "', write, (expression) => lark.rule(expression));
  return `${lark.text(`${tool.name}(`)} ${list} ")"`;
}

/** JSON is Python but for its words. */
function writeValue(lark: LarkGrammar, value: Value): string {
  switch (value.kind) {
    case "boolean":
      return '("True" | "False")';
    case "text":
      return lark.part({ kind: "json_schema", schema: { type: "string" } });
    case "choice":
      return lark.part({ kind: "json_schema", schema: { enum: value.choices } });
    default:
      return lark.part({ kind: "json_schema", schema: value.schema });
  }
}

function callInPython({ function: { name, arguments: given } = {} }: MadeCall): string {
  const args = objectOf(given);
  if (!args) return `${name}(${given ?? ""})`;
  const word = (value: unknown) => PYTHON_WORDS.get(value) ?? JSON.stringify(value);
  return `${name}(${Object.entries(args).map(([key, value]) => `${key}=${word(value)}`).join(", ")})`;
}

const PYTHON_WORDS: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  [true, "True"],
  [false, "False"],
  [null, "None"],
]);

/** A call's arguments, which come as JSON in a string; undefined where they are no object. */
function objectOf(given: unknown): object | undefined {
  try {
    const parsed: unknown = typeof given === "string" ? JSON.parse(given) : given;
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function* readCall(input: Input, answer: Answer): Reading<boolean> {
  if ((yield* input.peek()) === "{") return yield* readJsonCall(input, answer);
  const name = yield* input.characters(/[^(\s,\]\p{Surrogate}]/u);
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
