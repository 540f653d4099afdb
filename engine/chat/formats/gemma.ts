import type { ChatMessage } from "../../tokenizer/types.ts";
import type { Answer } from "../answer.ts";
import { textOf } from "../history.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import type { Mark } from "../marks.ts";
import { parseExactJson } from "../template/jinja/exact_json.ts";
import { type Parameter, parameterList, type Value, writtenParameters } from "../parameters.ts";
import type { CallFormat } from "./format.ts";
import { readEntry, readItems } from "./loose_value.ts";
import { markedSyntax } from "./marked.ts";

/**
 * Gemma 4 and FunctionGemma: `<|tool_call>call:f{p:<|"|>text<|"|>,q:1}<tool_call|>`. Marks replace the quotes
 * of texts.
 */
export const gemma: CallFormat = {
  name: "gemma",
  recognises: (source) => source.includes("<|tool_call>") || source.includes("<start_function_call>"),
  syntax(marks, source) {
    const texts = source.includes("<|tool_call>")
      ? ["<|tool_call>", "<tool_call|>", '<|"|>']
      : ["<start_function_call>", "<end_function_call>", "<escape>"];
    const [begin, end, quote] = texts.map((text) => marks.mark(text));
    return markedSyntax({
      begin,
      others: [end, quote],
      messages: source.includes("tool_responses") ? withResponses : undefined,
      rest(lark, { tools, many }) {
        const calls = tools.map((tool) =>
          `${lark.text(`call:${tool.name}{`)} ${entries(lark, writtenParameters(lark, tool), quote)} "}" ${
            lark.mark(end)
          }`
        );
        const call = lark.rule(calls.join(" | "));
        return many ? `${call} (${lark.mark(begin)} ${call})*` : call;
      },
      *readRest(input, answer) {
        yield* input.blank();
        if (yield* input.accept(["call:"])) yield* readCall(input, answer, quote);
        yield* input.until([end], () => {});
      },
    });
  },
};

/** Moves tool results, with their tools' names, into the message with the calls. */
function withResponses(messages: readonly ChatMessage[]): ChatMessage[] {
  const written: ChatMessage[] = [];
  const names = new Map<unknown, unknown>();
  for (const message of messages) {
    const last = written.at(-1);
    if (Array.isArray(message.tool_calls)) {
      for (const { id, function: called } of message.tool_calls) names.set(id, called?.name);
    }
    if (message.role !== "tool" || !Array.isArray(last?.tool_calls)) {
      written.push(message);
      continue;
    }
    const response = {
      name: names.get(message.tool_call_id) ?? "unknown",
      response: objectOr(textOf(message)),
    };
    const responses = Array.isArray(last.tool_responses) ? last.tool_responses : [];
    // A template would write this message's content after the tool responses and end the turn there.
    written[written.length - 1] = { ...last, content: null, tool_responses: [...responses, response] };
  }
  return written;
}

/** Returns a tool's result, parsed if it is a JSON object. */
function objectOr(text: string): unknown {
  try {
    const value = parseExactJson(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : text;
  } catch {
    return text;
  }
}

function entries(lark: LarkGrammar, parameters: readonly Parameter[], quote: Mark): string {
  const write = ({ name, value }: Parameter) => {
    const isPlain = /^[A-Za-z_][\w.-]*$/.test(name);
    const key = isPlain ? lark.text(`${name}:`) : lark.text(`${JSON.stringify(name)}:`);
    return `${key} ${writeValue(lark, value, quote)}`;
  };
  return parameterList(parameters, '","', write, (expression) => lark.rule(expression));
}

function writeValue(lark: LarkGrammar, value: Value, quote: Mark): string {
  const mark = lark.mark(quote);
  switch (value.kind) {
    case "text":
      return `${mark} ${lark.until(quote)}`;
    case "choice":
      return `${mark} ${oneOf(value.choices.map((text) => lark.text(text)))} ${mark}`;
    case "boolean":
      return '("true" | "false")';
    case "list": {
      const item = lark.rule(writeValue(lark, value.items, quote));
      return `"[" (${item} ("," ${item})*)? "]"`;
    }
    case "object":
      return `"{" ${entries(lark, value.properties, quote)} "}"`;
    case "json":
      return lark.part(value.form);
  }
}

function* readCall(input: Input, answer: Answer, quote: Mark): Reading {
  const name = yield* input.characters(/[^{\s\p{Surrogate}]/u);
  if (name === "" || !(yield* input.accept(["{"]))) return;
  const call = answer.call(name);
  const emit = (json: string) => answer.args(call, json);
  emit("{");
  yield* readItems(input, emit, "}", () => readEntry(input, emit, quote));
}
