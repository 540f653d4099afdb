import { isObject, type Paced, parseLargeJson, parseWrittenJson, type Stretch } from "../engine/mod.ts";

/** Limits that bound the time to about 5 ms. Numbers beyond them become ordinary JavaScript numbers. */
const MOST = { calls: 2048, units: 1 << 18, unitsWithNumbers: 1 << 15 };

const [QUOTE, BACKSLASH, BEGIN, END] = [0x22, 0x5c, 0x7b, 0x7d];

/** Pattern for the beginning of a call's arguments if they are an object. The pattern also matches some other objects. */
const ARGUMENTS = /"(?:input|arguments)"\s{0,9}:\s{0,9}\{/g;
/** Pattern for numbers that JavaScript might write with different digits. The pattern also matches some other text. */
const NUMBER = /[[:,]\s*(?:-0(?!\.)|-?(?:\d{16}|\d+\.(?:\d{15}|0{5}|\d*0\b)|[\d.]+[eE]))/;

/**
 * Parses a request, or a batch line with a request in its `body`. If the arguments of an earlier call are an object,
 * its numbers keep their digits: `JSON.stringify` writes 1.0 and 12345678901234567890 unchanged. Throws SyntaxError.
 */
export function parseRequest(text: string): unknown {
  return withWrittenNumbers(JSON.parse(text), () => text);
}

/** Parses a large request like parseRequest, in slices. `long` and errors are those of parseLargeJson. */
export function* parseLargeRequest(bytes: Uint8Array, long: Stretch[] = []): Paced<unknown> {
  const value = yield* parseLargeJson(bytes, long);
  return withWrittenNumbers(value, () => textWithout(long, bytes));
}

/** Returns the JSON text with its long strings emptied. Long strings, such as images, contain no numbers. */
function textWithout(long: readonly Stretch[], bytes: Uint8Array): string {
  const decoder = new TextDecoder();
  const starts = [...long.map(({ start }) => start), bytes.length];
  return starts.map((start, i) => decoder.decode(bytes.subarray(long[i - 1]?.end ?? 0, start))).join("");
}

/**
 * Gives the numbers of a parsed request the digits that they have in the text, as parseRequest does. Returns the
 * changed request. Few requests need the text.
 */
function withWrittenNumbers(parsed: unknown, text: () => string): unknown {
  const called = calls(parsed);
  if (called.length === 0) return parsed;
  const parts = argumentsIn(text());
  if (!parts.some(({ exact }) => exact !== undefined)) return parsed;
  const byText = Map.groupBy(parts, ({ written }) => JSON.stringify(JSON.parse(written)));
  for (const call of called.slice(0, parts.length)) {
    const field = isObject(call.input) ? "input" : "arguments";
    const exact = byText.get(JSON.stringify(call[field]))?.shift()?.exact;
    if (exact !== undefined) call[field] = exact;
  }
  return parsed;
}

interface Arguments {
  readonly written: string;
  /** Arguments whose numbers must keep their digits, because JavaScript would write different ones. */
  readonly exact: unknown;
}

/** Returns the objects in the text that may be a call's arguments, in the order of the text. */
function argumentsIn(text: string): Arguments[] {
  const parts: Arguments[] = [];
  let [units, unitsWithNumbers] = [0, 0];
  ARGUMENTS.lastIndex = 0;
  while (parts.length < MOST.calls && ARGUMENTS.test(text)) {
    const start = ARGUMENTS.lastIndex - 1;
    const end = endOfObject(text, start, start + MOST.units - units);
    if (end === undefined) break;
    const written = text.slice(start, end);
    units += written.length;
    const hasNumbers = NUMBER.test(written) && (unitsWithNumbers += written.length) <= MOST.unitsWithNumbers;
    parts.push({ written, exact: hasNumbers ? parseWrittenJson(written) : undefined });
    ARGUMENTS.lastIndex = end;
  }
  return parts;
}

/** Returns the index after the object that begins at `start`; undefined if it does not end before `most`. */
function endOfObject(text: string, start: number, most: number): number | undefined {
  let depth = 0;
  for (let at = start; at < most; at++) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) {
      for (at++; at < most && text.charCodeAt(at) !== QUOTE; at++) {
        if (text.charCodeAt(at) === BACKSLASH) at++;
      }
    } else if (unit === BEGIN) depth++;
    else if (unit === END && --depth === 0) return at + 1;
  }
  return undefined;
}

type Fields = Record<string, unknown>;

/** Returns the objects that have a call's arguments: Anthropic's blocks, and the functions of tool calls. */
function calls(value: unknown): Fields[] {
  const request = isObject(value) && isObject(value.body) ? value.body : value;
  return fieldsIn(request, "messages").flatMap((message) => [
    ...fieldsIn(message, "content"),
    ...fieldsIn(message, "tool_calls").flatMap((call) => isObject(call.function) ? [call.function] : []),
  ]).filter((call) => isObject(call.input) || isObject(call.arguments));
}

function fieldsIn(value: unknown, name: string): Fields[] {
  const list = isObject(value) ? value[name] : undefined;
  return Array.isArray(list) ? list.filter(isObject) : [];
}
