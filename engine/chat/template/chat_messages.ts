import type { Paced } from "../../pacing/pauses.ts";
import { quote } from "../../gguf/errors.ts";
import { type ChatMessage, MarkedText } from "../../tokenizer/types.ts";
import { parseExactJson } from "./jinja/exact_json.ts";
import { Float } from "./jinja/values.ts";

/** Maximum nesting of message data. It protects the stack; requests have a lower limit. */
const MAX_DEPTH = 256;

/** The form of a message with tool calls that a template expects. */
export interface CallStyle {
  /** Whether arguments are objects instead of the API's JSON text. */
  readonly objects: boolean;
  /** The value of an empty message content. */
  readonly noContent: null | "";
  /** Whether arguments that are not JSON become the text of one argument, because the template fails for a text. */
  readonly wraps?: boolean;
}

/** Forms of tool calls in order of preference: published templates are written for the first. */
export const CALL_STYLES: readonly CallStyle[] = [
  { objects: true, noContent: null },
  { objects: true, noContent: "" },
  { objects: false, noContent: null },
  { objects: false, noContent: "" },
];

/**
 * Returns a message in the template's form: text as one string (a list if `parts`), and tool calls in the template's
 * style.
 */
export function plainMessage(
  message: ChatMessage,
  style: CallStyle,
  parts = false,
): Record<string, unknown> {
  if (hasImages(message)) {
    return { ...message, content: (message.content as { type: string }[]).map(imageOrText) };
  }
  const plain = withPlainText(message, style);
  if (!parts) return plain;
  const { content } = plain;
  if (content === "" || content === null) return { ...plain, content: [] };
  const given = Array.isArray(message.content) && content === textOf(message.content);
  const texts = given ? (message.content as { text?: string }[]).map(({ text }) => text) : [content];
  return { ...plain, content: texts.map((text) => ({ type: "text", text })) };
}

function hasImages({ content }: ChatMessage): boolean {
  return Array.isArray(content) && content.some(({ type }) => type === "image");
}

function imageOrText(part: { type: string; text?: string }): { type: string; text?: string } {
  return part.type === "image" ? { type: "image" } : { type: "text", text: textOf([part]) };
}

function withPlainText(message: ChatMessage, style: CallStyle): Record<string, unknown> {
  const calls = Array.isArray(message.tool_calls) && message.tool_calls.length > 0
    ? message.tool_calls
    : undefined;
  const { written, ...rest } = message;
  const content = written instanceof MarkedText
    ? written
    : textOf(message.content) ?? (calls ? style.noContent : "");
  if (!calls || !style.objects) return { ...rest, content };
  return { ...rest, content, tool_calls: calls.map((call) => parseArguments(call, style)) };
}

/** Joins text parts by line breaks, as llama.cpp and vLLM do. */
function textOf(content: ChatMessage["content"] | undefined): string | undefined {
  if (!Array.isArray(content)) return content ?? undefined;
  return content.map(({ type, text }) => {
    if (type === "text" && typeof text === "string") return text;
    throw new Error(`a content part must have the type "text" (got ${quote(String(type))})`);
  }).join("\n");
}

/** Parses a tool call's arguments, a JSON string in the API. Numbers keep their text. */
function parseArguments(call: unknown, { wraps }: CallStyle): unknown {
  if (typeof call !== "object" || call === null) return call;
  const { function: called } = call as { function?: { arguments?: unknown } };
  const text = called?.arguments;
  if (typeof text !== "string") return call;
  const parsed = exactObject(text) ?? (wraps ? { arguments: text } : text);
  return { ...call, function: { ...called, arguments: parsed } };
}

/** Returns a text as an object; undefined if it is not a JSON object, such as arguments that a token limit has cut. */
function exactObject(text: string): object | undefined {
  try {
    const parsed = parseExactJson(text);
    return typeof parsed === "object" && parsed !== null && !(parsed instanceof Float) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns a copy of JSON data with `change` applied to every text, including keys, but not to marks. Throws for values
 * that JSON cannot represent.
 */
export function* mapTexts<T>(data: T, change: (text: string) => Paced<string>): Paced<T> {
  function* copy(value: unknown, depth: number): Paced<unknown> {
    if (depth > MAX_DEPTH) throw new Error(`values are nested more than ${MAX_DEPTH} deep`);
    if (typeof value === "string") return yield* change(value);
    if (Array.isArray(value)) {
      const items: unknown[] = [];
      for (const item of value) items.push(yield* copy(item, depth + 1));
      return items;
    }
    if (value instanceof MarkedText) {
      let text = "";
      for (const piece of value.pieces) text += typeof piece === "string" ? yield* change(piece) : piece.mark;
      return text;
    }
    if (value instanceof Float) return value;
    if (typeof value === "object" && value !== null) {
      const entries: [string, unknown][] = [];
      for (const [key, item] of Object.entries(value)) {
        if (item !== undefined) entries.push([yield* change(key), yield* copy(item, depth + 1)]);
      }
      return Object.fromEntries(entries);
    }
    if (value === null || ["boolean", "number", "bigint"].includes(typeof value)) return value;
    throw new Error(`a value must be JSON (got a ${typeof value})`);
  }
  return (yield* copy(data, 0)) as T;
}

/**
 * Returns the conversation for a template that refuses it unchanged: at most one system message, at the beginning, and
 * no consecutive messages of one role. A later system message joins the user message before it, else the next one. Its
 * place stays the same when the conversation grows, so the prefix cache still matches.
 */
export function mergedMessages(messages: readonly ChatMessage[]): ChatMessage[] {
  const merged: ChatMessage[] = [];
  let later: ChatMessage | undefined;
  for (const message of messages) {
    const last = merged.at(-1);
    const isLater = isSystem(message) && last !== undefined && !isSystem(last);
    if (isLater) {
      const folded = { ...message, role: "user" };
      if (joins(last, folded)) merged[merged.length - 1] = joinedMessage(last, folded);
      else later = later ? joinedMessage(later, message) : folded;
    } else {
      const next = later && message.role === "user" ? joinedMessage(later, message) : message;
      if (next !== message) later = undefined;
      if (last && joins(last, next)) merged[merged.length - 1] = joinedMessage(last, next);
      else merged.push(next);
    }
  }
  return later ? [...merged, later] : merged;
}

function isSystem({ role }: ChatMessage): boolean {
  return role === "system" || role === "developer";
}

/** Returns whether two messages are joined. Tool results, and messages with tool calls, stay separate. */
function joins(a: ChatMessage, b: ChatMessage): boolean {
  const isPlain = (message: ChatMessage) =>
    message.role !== "tool" && message.tool_calls === undefined && message.written === undefined &&
    !hasImages(message);
  return (a.role === b.role || isSystem(a) && isSystem(b)) && isPlain(a) && isPlain(b);
}

function joinedMessage(a: ChatMessage, b: ChatMessage): ChatMessage {
  const texts = [textOf(a.content), textOf(b.content)].filter((text) => text);
  return { ...b, ...a, content: texts.join("\n\n") };
}
