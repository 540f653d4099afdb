import type { ChatMessage } from "../../tokenizer/types.ts";
import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { Mark } from "../marks.ts";
import { argumentsForm } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { jsonCallList, readJsonCalls } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/**
 * Mistral: `[TOOL_CALLS][{"name": "f", "arguments": {…}}]`. Newer models: `[TOOL_CALLS]f[ARGS]{…}`, some with
 * an id.
 */
export const mistral: CallFormat = {
  name: "mistral",
  recognises: (source) => source.includes("[TOOL_CALLS]"),
  syntax(marks, source) {
    const begin = marks.mark("[TOOL_CALLS]");
    const args = marks.mark("[ARGS]");
    const id = marks.mark("[CALL_ID]");
    const named = source.includes("[ARGS]");
    return markedSyntax({
      begin,
      others: named ? [args, id] : [],
      messages: (messages) => messages.map(withShortIds),
      rest(lark, { tools, many }) {
        if (!named) return `/ ?/ ${jsonCallList(lark, tools, many)}`;
        const withId = source.includes("[CALL_ID]") ? `${lark.mark(id)} /[a-zA-Z0-9]{9}/` : "";
        const calls = tools.map((tool) =>
          `${lark.text(tool.name)} ${withId} ${lark.mark(args)} ${lark.part(argumentsForm(tool))}`
        );
        const call = lark.rule(calls.join(" | "));
        return many ? `${call} (${lark.mark(begin)} ${call})*` : call;
      },
      *readRest(input, answer) {
        yield* input.blank();
        const next = yield* input.peek();
        if (next === "[" && !(yield* input.startsWith(args.sign)) || next === "{") {
          yield* readJsonCalls(input, answer);
        } else yield* readNamed(input, answer, args, id);
      },
    });
  },
};

function* readNamed(input: Input, answer: Answer, args: Mark, id: Mark): Reading {
  let name = "";
  const mark = yield* input.until([args, id], (text) => name += text);
  if (!mark) return;
  const call = answer.call(name.trim());
  if (mark === id && !(yield* input.until([args], () => {}))) return;
  yield* input.blank();
  yield* input.json((text) => answer.args(call, text));
}

/** Returns the message with shortened call ids: Mistral's templates need nine letters and digits. */
function withShortIds(message: ChatMessage): ChatMessage {
  const { tool_calls: calls, tool_call_id: id } = message;
  return {
    ...message,
    ...(typeof id === "string" ? { tool_call_id: shortId(id) } : {}),
    ...(Array.isArray(calls) && calls.length > 0
      ? { tool_calls: calls.map((call) => ({ ...call, id: shortId(String(call.id ?? "")) })) }
      : {}),
  };
}

function shortId(id: string): string {
  return id.replaceAll(/[^a-zA-Z0-9]/g, "").slice(-9).padStart(9, "0");
}
