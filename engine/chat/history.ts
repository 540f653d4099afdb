import { mapInSlices } from "../pacing/pauses.ts";
import { type ChatMessage, MarkedText } from "../tokenizer/types.ts";
import type { Thinking } from "./thinking.ts";

/** Moves earlier thinking from `reasoning_content` to the field that the template reads. */
export function withReasoning(
  messages: readonly ChatMessage[],
  source: string,
  thinking: Thinking | undefined,
): ChatMessage[] {
  const place = reasoningPlace(source);
  return mapInSlices(messages, (message) => {
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

/** Returns the message field from which the template reads thinking; "content" if it reads none. */
function reasoningPlace(source: string): typeof REASONING_FIELDS[number] | "content" {
  for (const field of REASONING_FIELDS) {
    const read = new RegExp(
      `message(\\.${field}\\b|\\[['"]${field}['"]\\]|\\.get\\(['"]${field}['"])|['"]${field}['"] in message`,
    );
    if (read.test(source)) return field;
  }
  return "content";
}

/** A tool call as a client sends it. */
interface GivenCall {
  readonly id?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown };
}

/**
 * Completes tool calls and results of earlier turns. A call without an id gets one. A result without an id belongs to
 * the first call of its tool that has no result yet, or else to the first call without a result. The ids are
 * deterministic, so that prompts share prefixes. Missing arguments become {}, and an empty content beside calls becomes
 * null.
 */
export function completed(messages: readonly ChatMessage[]): ChatMessage[] {
  let count = 0;
  let open: { readonly id: unknown; readonly name: unknown }[] = [];
  const newId = () => `call_${String(++count).padStart(24, "0")}`;
  return mapInSlices(messages, (message) => {
    const { role, name, tool_call_id: given, tool_calls: calls } = message;
    if (role === "tool") {
      const id = given || (open.find((call) => call.name === name) ?? open.at(0))?.id || newId();
      open = open.filter((call) => call.id !== id);
      return { ...message, tool_call_id: id };
    }
    if (!Array.isArray(calls) || calls.length === 0) return message;
    const complete = calls.map((call: GivenCall) => ({
      ...call,
      id: call.id || newId(),
      function: { ...call.function, arguments: givenArguments(call) },
    }));
    open = complete.map(({ id, function: called }) => ({ id, name: called.name }));
    return { ...message, content: message.content || null, tool_calls: complete };
  });
}

function givenArguments({ function: { arguments: given } = {} }: GivenCall): unknown {
  const isMissing = given === undefined || given === null ||
    typeof given === "string" && /^\s*(?:null\s*)?$/.test(given);
  return isMissing ? "{}" : given;
}

/**
 * Splits each message with several calls into one message per call, followed by its result, for templates
 * that show only one call.
 */
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

/** A tool call in a message. */
export interface MadeCall {
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown };
}

/** Appends tool calls to the content as text between marks, for templates that do not show calls. */
export function callsAsText(
  messages: readonly ChatMessage[],
  begin: string,
  end: string,
  write: (calls: readonly MadeCall[]) => string,
): ChatMessage[] {
  return callsWritten(messages, (calls) => [{ mark: begin }, write(calls), { mark: end }]);
}

/** Appends tool calls to the content as text, with marks. */
export function callsWritten(
  messages: readonly ChatMessage[],
  write: (calls: readonly MadeCall[]) => MarkedText["pieces"],
): ChatMessage[] {
  return messages.map(({ tool_calls: calls, ...message }) => {
    if (!Array.isArray(calls) || calls.length === 0) return message;
    return { ...message, written: new MarkedText([textOf(message), ...write(calls)]) };
  });
}

/** Returns a tool call as JSON in the models' spelling. */
export function callAsJson(call: MadeCall): string {
  return `{"name": ${JSON.stringify(String(call.function?.name))}, "arguments": ${argumentsOf(call)}}`;
}

/** Returns a call's arguments as JSON. */
export function argumentsOf({ function: { arguments: given } = {} }: MadeCall): string {
  return typeof given === "string" ? given : JSON.stringify(given ?? {});
}

/** Returns contents as one, with `separator` between them: a text or, with images, parts. */
export function joinedContent(
  contents: readonly (ChatMessage["content"])[],
  separator = "",
): ChatMessage["content"] {
  const hasImages = contents.some((content) => Array.isArray(content) && content.some(isImage));
  if (!hasImages) return contents.map((content) => textOf({ role: "", content })).join(separator);
  return contents.flatMap((content, i) => [
    ...(i > 0 && separator !== "" ? [{ type: "text", text: separator }] : []),
    ...(Array.isArray(content) ? content : [{ type: "text", text: content ?? "" }]),
  ]);
}

function isImage({ type }: { type: string }): boolean {
  return type === "image";
}

/** Returns a message's text; "" if it has none. */
export function textOf({ content }: ChatMessage): string {
  return Array.isArray(content) ? content.map(({ text }) => text ?? "").join("\n") : content ?? "";
}
