import { quote } from "../gguf/errors.ts";
import { type ChatMessage, MarkedText } from "./types.ts";

/** The requests' own bound is lower; this one keeps the recursion below from running out of stack. */
const MAX_DEPTH = 256;

/** What a template expects of a message that makes calls. */
export interface CallStyle {
  /** The calls' arguments as objects, not as the JSON text that the API carries. */
  readonly objects: boolean;
  /** What stands for no content. */
  readonly noContent: null | "";
}

/** In order of preference: the published templates are written for the first. */
export const CALL_STYLES: readonly CallStyle[] = [
  { objects: true, noContent: null },
  { objects: true, noContent: "" },
  { objects: false, noContent: null },
  { objects: false, noContent: "" },
];

/** A message as templates expect it: text as one string, calls in the template's style. */
export function plainMessage(message: ChatMessage, style: CallStyle): Record<string, unknown> {
  const calls = Array.isArray(message.tool_calls) && message.tool_calls.length > 0
    ? message.tool_calls
    : undefined;
  const { written, ...rest } = message;
  const content = written instanceof MarkedText
    ? written
    : textOf(message.content) ?? (calls ? style.noContent : "");
  if (!calls || !style.objects) return { ...rest, content };
  return { ...rest, content, tool_calls: calls.map(parseArguments) };
}

/** Parts are joined by line breaks, as llama.cpp and vLLM do. */
function textOf(content: ChatMessage["content"] | undefined): string | undefined {
  if (!Array.isArray(content)) return content ?? undefined;
  return content.map(({ type, text }) => {
    if (type === "text" && typeof text === "string") return text;
    throw new Error(`a content part must have the type "text" (got ${quote(String(type))})`);
  }).join("\n");
}

/** The API carries a call's arguments as JSON in a string. */
function parseArguments(call: unknown): unknown {
  if (typeof call !== "object" || call === null) return call;
  const { function: called } = call as { function?: { arguments?: unknown } };
  if (typeof called?.arguments !== "string") return call;
  try {
    const parsed: unknown = JSON.parse(called.arguments);
    if (typeof parsed !== "object" || parsed === null) return call;
    return { ...call, function: { ...called, arguments: parsed } };
  } catch {
    return call; // What is no JSON is shown as it is.
  }
}

/** A copy of JSON data with every text in it, keys included but no marks, put through `change`. Throws for what is no JSON. */
export function mapTexts<T>(data: T, change: (text: string) => string): T {
  const copy = (value: unknown, depth: number): unknown => {
    if (depth > MAX_DEPTH) throw new Error(`values are nested more than ${MAX_DEPTH} deep`);
    if (typeof value === "string") return change(value);
    if (Array.isArray(value)) return value.map((item) => copy(item, depth + 1));
    if (value instanceof MarkedText) {
      return value.pieces.map((piece) => typeof piece === "string" ? change(piece) : piece.mark).join("");
    }
    if (typeof value === "object" && value !== null) {
      const entries = Object.entries(value).filter(([, item]) => item !== undefined);
      return Object.fromEntries(entries.map(([key, item]) => [change(key), copy(item, depth + 1)]));
    }
    if (value === null || typeof value === "boolean" || typeof value === "number") return value;
    throw new Error(`a value must be JSON (got a ${typeof value})`);
  };
  return copy(data, 0) as T;
}
