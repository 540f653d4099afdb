import { type ChatMessage, MarkedText } from "../tokenizer/types.ts";
import type { Thinking } from "./thinking.ts";

/** Earlier thinking, which requests carry in `reasoning_content`, as the template wants it. */
export function withReasoning(
  messages: readonly ChatMessage[],
  source: string,
  thinking: Thinking | undefined,
): ChatMessage[] {
  const place = reasoningPlace(source);
  return messages.map((message) => {
    const { reasoning_content: reasoning, ...rest } = message;
    if (typeof reasoning !== "string" || reasoning === "" || message.role !== "assistant") {
      return place === "reasoning_content" ? message : rest;
    }
    if (place !== "content") return { ...rest, [place]: reasoning };
    if (!thinking || !source.includes(thinking.end.text) || Array.isArray(rest.content)) return rest;
    const { begin, end, label, afterBegin, beforeEnd, afterEnd } = thinking;
    const text = begin.text + label + afterBegin + reasoning + beforeEnd + end.text + afterEnd;
    return { ...rest, content: text + (rest.content ?? "") };
  });
}

const REASONING_FIELDS = ["reasoning_content", "thinking", "reasoning", "tool_plan"] as const;

/** The field of a message in which the template looks for thinking; "content" where it has none of its own. */
function reasoningPlace(source: string): typeof REASONING_FIELDS[number] | "content" {
  for (const field of REASONING_FIELDS) {
    const read = new RegExp(
      `message(\\.${field}\\b|\\[['"]${field}['"]\\]|\\.get\\(['"]${field}['"])|['"]${field}['"] in message`,
    );
    if (read.test(source)) return field;
  }
  return "content";
}

/** A message for each call, and what it gave behind it, for templates that show no second call of a message. */
export function callsApart(messages: readonly ChatMessage[]): ChatMessage[] {
  const apart: ChatMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const { tool_calls: calls, ...message } = messages[at];
    if (!Array.isArray(calls) || calls.length < 2) {
      apart.push(messages[at]);
      continue;
    }
    const results: ChatMessage[] = [];
    while (messages[at + 1]?.role === "tool") results.push(messages[++at]);
    for (const [index, call] of calls.entries()) {
      const said = index === 0 ? message : { role: message.role, content: null };
      const given = results.filter(({ tool_call_id: id }) => id === call?.id);
      apart.push({ ...said, tool_calls: [call] }, ...given);
    }
    apart.push(...results.filter(({ tool_call_id: id }) => calls.every((call) => call?.id !== id)));
  }
  return apart;
}

/** A call in a message. */
export interface MadeCall {
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown };
}

/** Calls as text behind the contents, between marks, for templates that leave calls out. */
export function callsAsText(
  messages: readonly ChatMessage[],
  begin: string,
  end: string,
  write: (calls: readonly MadeCall[]) => string,
): ChatMessage[] {
  return callsWritten(messages, (calls) => [{ mark: begin }, write(calls), { mark: end }]);
}

/** Calls as text and marks behind the contents. */
export function callsWritten(
  messages: readonly ChatMessage[],
  write: (calls: readonly MadeCall[]) => MarkedText["pieces"],
): ChatMessage[] {
  return messages.map(({ tool_calls: calls, ...message }) => {
    if (!Array.isArray(calls) || calls.length === 0) return message;
    return { ...message, written: new MarkedText([textOf(message), ...write(calls)]) };
  });
}

/** A call as JSON, as models write it. */
export function callAsJson(call: MadeCall): string {
  return `{"name": ${JSON.stringify(String(call.function?.name))}, "arguments": ${argumentsOf(call)}}`;
}

/** A call's arguments as JSON. */
export function argumentsOf({ function: { arguments: given } = {} }: MadeCall): string {
  return typeof given === "string" ? given : JSON.stringify(given ?? {});
}

/** What a message says; empty where it says nothing. */
export function textOf({ content }: ChatMessage): string {
  return Array.isArray(content) ? content.map(({ text }) => text ?? "").join("\n") : content ?? "";
}
