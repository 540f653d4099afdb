import { type Paced, STEPS_PER_OFFER } from "./pauses.ts";

/** Reads and writes large JSON in slices. */

/** Bytes of JSON that are parsed in one piece, in up to about 2 ms. */
const PIECE_BYTES = 1 << 15;

const codes = (text: string) => Array.from(text, (c) => c.charCodeAt(0));
const [QUOTE, COMMA, COLON, BACKSLASH, OPEN, CLOSE, BEGIN, END, U] = codes('",:\\[]{}u');
const BLANK = codes(" \t\r\n");
export const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

/** An array or object that is being read. Its members are parsed in groups, as many as fit into one piece. */
interface Container {
  readonly isArray: boolean;
  readonly start: number;
  /** Position of the first member that is not parsed yet. */
  from: number;
  /** Position of the member that is being read. */
  member: number;
  /** The parsed members. Undefined while the whole container may still be parsed together with its parent. */
  value: unknown[] | Record<string, unknown> | undefined;
  /** Whether the current member is parsed already, so that only white space may follow before the next comma. */
  isRead: boolean;
}

/** After this many bytes of a string without escapes, the native search for the string's end is faster than a loop. */
export const PLAIN_BYTES = 1 << 10;

/** Returns the position of the first quote or backslash from `at` on; `end` if there is none. */
export function plainUntil(bytes: Uint8Array, at: number, end: number): number {
  const quote = bytes.subarray(at, end).indexOf(QUOTE);
  const plain = bytes.subarray(at, quote < 0 ? end : at + quote);
  const escape = plain.indexOf(BACKSLASH);
  return at + (escape < 0 ? plain.length : escape);
}

/** A string that is being read. */
interface Text {
  readonly start: number;
  /** Position of the first part that is not parsed yet. */
  from: number;
  /** Position after the last escape. */
  plain: number;
  /** The parsed beginning. Undefined while the whole string may still be parsed together with its container. */
  parts: string[] | undefined;
  /** Whether the string is the value of a member, and not its name; undefined if that is not known yet. */
  isValue: boolean | undefined;
}

/** Bytes from `start` to before `end`. */
export interface Stretch {
  readonly start: number;
  readonly end: number;
}

/**
 * Parses UTF-8 JSON like `JSON.parse`, in slices. Adds the positions of long strings without escapes to `long`. Throws
 * SyntaxError for invalid JSON, TypeError for invalid UTF-8.
 */
export function* parseLargeJson(bytes: Uint8Array, long: Stretch[] = []): Paced<unknown> {
  const reader = new LargeJson(bytes, long, BYTE_ORDER_MARK.every((byte, i) => bytes[i] === byte) ? 3 : 0);
  while (!reader.read(4 * STEPS_PER_OFFER)) yield;
  return reader.end();
}

class LargeJson {
  readonly #open: Container[];
  #text: Text | undefined;
  #at: number;

  /** The JSON begins at byte `at`. */
  constructor(private readonly bytes: Uint8Array, private readonly long: Stretch[], at: number) {
    this.#at = at;
    this.#open = [container(true, at - 1)];
  }

  /** Reads about `bytes` bytes. Returns whether all bytes have been read. */
  read(count: number): boolean {
    const { bytes } = this;
    const end = Math.min(this.#at + count, bytes.length);
    for (let at = this.#at; at < end; this.#at = ++at) {
      const byte = bytes[at];
      if (this.#text) at = this.#inText(this.#text, at, end);
      else if (byte === QUOTE) {
        this.#text = { start: at, from: at + 1, plain: at + 1, parts: undefined, isValue: undefined };
      } else if (byte === OPEN || byte === BEGIN) this.#open.push(container(byte === OPEN, at));
      else if (byte === CLOSE || byte === END) this.#close(byte === CLOSE, at);
      else if (byte === COMMA) this.#comma(at);
    }
    return this.#at >= bytes.length;
  }

  /** Returns the parsed value. Call it after all bytes have been read. */
  end(): unknown {
    const [root, inner] = this.#open;
    const { length } = this.bytes;
    if (inner || this.#text) fail("Unexpected end of JSON input");
    if (!root.isRead) return this.#parse("", root.start + 1, length, "");
    if (root.member > root.start + 1) fail("Unexpected , after JSON");
    this.#checkBlank(root.from, length);
    return (root.value as unknown[])[0];
  }

  /** Reads on in a string. Returns the position of the string's last byte, or of the last byte that was read. */
  #inText(text: Text, at: number, end: number): number {
    const { bytes } = this;
    for (; at < end; at++) {
      const byte = bytes[at];
      if (byte === QUOTE) {
        this.#text = undefined;
        if (text.parts) {
          if (text.plain === text.start + 1) this.long.push({ start: text.plain, end: at });
          text.parts.push(this.#parse('"', text.from, at, '"') as string);
          this.#take(text.parts.join(""), text.start, at + 1); // joining makes the string flat, so that reads are fast
        }
        return at;
      }
      if (at - text.from > PIECE_BYTES && (byte & 0xc0) !== 0x80 && this.#isValue(text)) {
        (text.parts ??= []).push(this.#parse('"', text.from, at, '"') as string);
        text.from = at;
      }
      if (byte === BACKSLASH) {
        at += bytes[at + 1] === U ? 5 : 1;
        text.plain = at + 1;
      } else if (at - text.plain > PLAIN_BYTES && at - text.from <= PIECE_BYTES) {
        at = plainUntil(bytes, at + 1, end) - 1;
      }
    }
    return at - 1;
  }

  #isValue(text: Text): boolean {
    return text.isValue ??= this.#open.at(-1)!.isArray || this.#before(text.start) === COLON;
  }

  /** Returns the last byte before `at` that is not white space. */
  #before(at: number): number {
    while (at > 0 && BLANK.includes(this.bytes[at - 1])) at--;
    return this.bytes[at - 1];
  }

  #comma(at: number): void {
    const inner = this.#open.at(-1)!;
    if (inner.isRead) {
      this.#checkBlank(inner.from, at);
      inner.from = at + 1;
      inner.isRead = false;
    } else if (at - inner.from > PIECE_BYTES) {
      this.#flush(inner, at, true);
    }
    inner.member = at + 1;
  }

  #close(isArray: boolean, at: number): void {
    const inner = this.#open.pop()!;
    if (this.#open.length === 0 || inner.isArray !== isArray) fail(`Unexpected bracket at byte ${at}`);
    // A small container is parsed with its neighbours.
    if (!inner.value && at - inner.from <= PIECE_BYTES) return;
    if (inner.isRead) this.#checkBlank(inner.from, at);
    else this.#flush(inner, at, false);
    this.#take(inner.value, inner.start, at + 1);
  }

  /** Parses the members of a container up to `end`. `more`: whether a comma follows at `end`. */
  #flush(inner: Container, end: number, more: boolean): void {
    const { isArray, value, from } = inner;
    if ((value || more) && isBlank(this.#decode(from, end))) fail(`Missing value at byte ${end}`);
    const members = this.#parse(isArray ? "[" : "{", from, end, isArray ? "]" : "}");
    if (!value) inner.value = members as Container["value"];
    else if (Array.isArray(value)) { for (const one of members as unknown[]) value.push(one); }
    else for (const [name, one] of Object.entries(members as object)) define(value, name, one);
    inner.from = end + 1;
  }

  /** Adds a member, which was read from `start` to `end`, to the innermost container. */
  #take(given: unknown, start: number, end: number): void {
    const inner = this.#open.at(-1)!;
    if (inner.isRead) fail(`Missing comma at byte ${start}`);
    if (inner.from < inner.member) this.#flush(inner, inner.member - 1, true);
    inner.value ??= inner.isArray ? [] : {};
    if (Array.isArray(inner.value)) {
      this.#checkBlank(inner.member, start);
      inner.value.push(given);
    } else {
      if (this.#before(start) !== COLON) fail(`Missing colon at byte ${start}`);
      const [name] = Object.keys(this.#parse("{", inner.member, start, "0}") as object);
      define(inner.value, name, given);
    }
    inner.from = end;
    inner.isRead = true;
  }

  #checkBlank(start: number, end: number): void {
    if (!isBlank(this.#decode(start, end))) fail(`Unexpected text after byte ${start}`);
  }

  #parse(before: string, start: number, end: number, after: string): unknown {
    const text = this.#decode(start, end);
    try {
      return JSON.parse(before + text + after);
    } catch (error) {
      // The parser's message has a position in the piece, which would mislead readers.
      const reason = (error as Error).message.replace(/ at position .*/s, "");
      return fail(`${reason} between byte ${start} and byte ${end}`);
    }
  }

  #decode(start: number, end: number): string {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes.subarray(start, end));
  }
}

function container(isArray: boolean, start: number): Container {
  return { isArray, start, from: start + 1, member: start + 1, value: undefined, isRead: false };
}

function isBlank(text: string): boolean {
  return /^[ \t\r\n]*$/.test(text);
}

function fail(message: string): never {
  throw new SyntaxError(message);
}

/** Sets an own property, even if the name is `__proto__`. */
function define(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== "__proto__") object[name] = value;
  else Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

/** Entries of a list that are written in one piece. */
const ENTRIES_PER_PIECE = 1 << 10;
/** Levels of containers whose long lists are written in pieces. */
const LEVELS = 5;

/** Returns whether the value is a number that keeps its original digits. TypeScript does not know this function yet. */
const { isRawJSON } = JSON as unknown as { isRawJSON(value: unknown): boolean };

/** Writes JSON data like `JSON.stringify`, in slices. */
export function* writeLargeJson(value: unknown, levels = LEVELS): Paced<string | undefined> {
  if (typeof value !== "object" || value === null || levels === 0 || isRawJSON(value)) {
    if (typeof value === "string" && value.length > PIECE_BYTES) yield;
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return yield* writeList(value, levels);
  let text = "";
  for (const [name, field] of Object.entries(value)) {
    const written = yield* writeLargeJson(field, levels - 1);
    if (written !== undefined) text += `${text === "" ? "" : ","}${JSON.stringify(name)}:${written}`;
  }
  return `{${text}}`;
}

function* writeList(list: readonly unknown[], levels: number): Paced<string> {
  const isLong = list.length > ENTRIES_PER_PIECE;
  let text = "";
  for (let start = 0; start < list.length; start += isLong ? ENTRIES_PER_PIECE : 1) {
    if (start > 0) text += ",";
    if (isLong) {
      text += JSON.stringify(list.slice(start, start + ENTRIES_PER_PIECE)).slice(1, -1);
      yield;
    } else text += (yield* writeLargeJson(list[start], levels - 1)) ?? "null";
  }
  return `[${text}]`;
}
