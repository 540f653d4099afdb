import { parseWrittenJson } from "../engine/mod.ts";

/** Texts with more commas are parsed without keeping numbers: it takes 1 µs per value. */
const MAX_COMMAS = 20_000;

const CALLS = /"(?:tool_use|tool_calls)"/;
/** Matches numbers that JavaScript may write in another way than they are written, and some other text. */
const NUMBER = /[[:,]\s*-?(?:\d{16}|\d+\.\d*0\b|[\d.]+[eE]|0\b)/;

/**
 * Parses a request, or a line with one in its `body`. The arguments of earlier calls that are objects keep the text of
 * their numbers: `JSON.stringify` writes 1.0 and 12345678901234567890 as they were. Throws SyntaxError.
 */
export function parseRequest(text: string): unknown {
  const parsed: unknown = JSON.parse(text);
  if (CALLS.test(text) && NUMBER.test(text) && isShort(text)) {
    const [plain, exact] = [parsed, parseWrittenJson(text)].map(calls);
    for (const [at, call] of plain.entries()) {
      for (const field of ["input", "arguments"]) {
        if (typeof call[field] === "object") call[field] = exact[at][field];
      }
    }
  }
  return parsed;
}

type Fields = Record<string, unknown>;

/** Returns the objects that have a call's arguments: Anthropic's blocks, and the functions of tool calls. */
function calls(value: unknown): Fields[] {
  const request = isFields(value) && isFields(value.body) ? value.body : value;
  return fieldsIn(request, "messages").flatMap((message) => [
    ...fieldsIn(message, "content"),
    ...fieldsIn(message, "tool_calls").flatMap((call) => isFields(call.function) ? [call.function] : []),
  ]);
}

function fieldsIn(value: unknown, name: string): Fields[] {
  const list = isFields(value) ? value[name] : undefined;
  return Array.isArray(list) ? list.filter(isFields) : [];
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isShort(text: string): boolean {
  let commas = 0;
  for (let at = text.indexOf(","); at >= 0 && commas <= MAX_COMMAS; at = text.indexOf(",", at + 1)) commas++;
  return commas <= MAX_COMMAS;
}
