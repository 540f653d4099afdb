import type { Answer } from "../answer.ts";
import { callsAsText, type MadeCall } from "../history.ts";
import type { Input, Reading } from "../input.ts";
import { parseWrittenJson } from "../written_json.ts";
import type { CallFormat } from "./format.ts";
import { readJsonCall } from "./json_call.ts";
import { readItems } from "./loose_value.ts";
import { markedSyntax } from "./marked.ts";
import { pythonCall, readPythonCall } from "./python_call.ts";

/** Texts that identify LFM2's templates, and LFM2.5's templates that show no earlier calls. */
const SIGNS = ["<|tool_call_start|>", "<|tool_list_start|>", '"List of tools: ["'];

/** LFM2: a list of calls in Python's syntax, `<|tool_call_start|>[f(p="text", q=1)]<|tool_call_end|>`. */
export const lfm2: CallFormat = {
  name: "lfm2",
  recognises: (source) => SIGNS.some((sign) => source.includes(sign)),
  syntax(marks, source) {
    const [begin, end] = [marks.mark("<|tool_call_start|>"), marks.mark("<|tool_call_end|>")];
    return markedSyntax({
      begin,
      others: [end],
      // LFM2's older templates show no earlier calls.
      messages: source.includes("tool_calls")
        ? undefined
        : (messages) =>
          callsAsText(messages, begin.text, end.text, (calls) => `[${calls.map(callInPython).join(", ")}]`),
      rest(lark, { tools, many }) {
        const call = pythonCall(lark, tools, "Python");
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

/** Returns a call's arguments, parsed from JSON; undefined if they are not an object. */
function objectOf(given: unknown): object | undefined {
  try {
    const parsed = typeof given === "string" ? parseWrittenJson(given) : given;
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function* readCall(input: Input, answer: Answer): Reading<boolean> {
  if ((yield* input.peek()) === "{") return yield* readJsonCall(input, answer);
  return yield* readPythonCall(input, answer);
}
