/** Text that must come next, divided into tokens as the tokenizer divides it. */

import type { Tokenizer } from "../tokenizer/types.ts";

/** What the library says of a text that must come next. */
export interface ForcedText {
  /** UTF-8; 0xFF and `[id]` for a token that is no text. */
  readonly bytes: Uint8Array;
  /** From the text's end backwards, in bytes: where a token may begin that extends past it. */
  readonly crossings: Uint32Array;
  /** A bit for each byte that may follow the text. */
  readonly next: Uint8Array; // [32]
}

const MARKER = 0xff;
const BLANK = 0x20;
/** Most tokens at once; the rest is forced again after them. */
const MOST_TOKENS = 256;
/** A longer text is cut here, in bytes; what ends closer to the cut than a token may reach is not forced yet. */
const LONGEST = 4096;
const BEYOND = 1024;
/** Of how many tokens before it the text is divided; fewer where those are not what the tokenizer makes of their text. */
const WINDOWS = [8, 1, 0];

/** What stands for all the characters that pre-tokenizers treat as one class, where one that begins so may follow. */
const PROBES = [
  "a",
  "A",
  "1",
  " ",
  "\t",
  "\n",
  "\r",
  '"',
  "'",
  "{",
  "-",
  "é",
  "É",
  "中",
  "“",
  "\u00a0",
  "٣",
  "👍",
];

interface Division {
  readonly tokens: readonly number[];
  /** Where each token ends, in bytes of the text. */
  readonly ends: readonly number[];
}

/** The tokens that a text is divided behind. */
interface Window {
  readonly tokens: readonly number[];
  readonly bytes: Uint8Array;
}

/** Divides forced texts for one vocabulary. */
export class Divider {
  readonly #text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** Put before a text, where the tokenizer would else treat it as the beginning of a prompt. */
  readonly #anchor: string;
  readonly #anchorTokens: readonly number[];

  /** `isText` says of a token whether it may stand for text. */
  constructor(private readonly tokenizer: Tokenizer, private readonly isText: (token: number) => boolean) {
    const alone = tokenizer.encode("a");
    const blankFirst = alone.length > 0 && tokenizer.bytes(alone[0])[0] === 0x20;
    this.#anchor = blankFirst ? "\n" : "";
    this.#anchorTokens = tokenizer.encode(this.#anchor);
  }

  /**
   * The tokens that the tokenizer makes of the text behind `history` whatever follows it; what could still become part of a
   * token with later text is left out. A function of the answer's own tokens and of the text.
   */
  divide(forced: ForcedText, history: readonly number[]): number[] {
    const tokens: number[] = [];
    let context = history;
    for (const part of parts(forced.bytes)) {
      if (tokens.length >= MOST_TOKENS) break;
      if (typeof part === "number") {
        tokens.push(part);
        context = [];
        continue;
      }
      const bytes = forced.bytes.subarray(part.start, part.end);
      if (bytes.length > LONGEST) {
        tokens.push(...this.#beginning(bytes, context));
        break;
      }
      if (part.end === forced.bytes.length) {
        tokens.push(...this.#open(bytes, forced, context));
      } else {
        const division = this.#behind(bytes, context).division;
        tokens.push(...division?.tokens ?? []);
        if (division?.ends.at(-1) !== bytes.length) break;
      }
    }
    return tokens.slice(0, MOST_TOKENS);
  }

  /** Of a text whose end is open, what no later text can change. */
  #open(bytes: Uint8Array, { next, crossings }: ForcedText, context: readonly number[]): readonly number[] {
    if (unfinished(bytes) > 0) return this.#untilLastWord(bytes, context);
    const { window, division } = this.#behind(bytes, context);
    if (!division) return [];
    const whole = this.#decode(join(window.bytes, bytes))!;
    let count = division.tokens.length;
    for (const probe of probes(next)) {
      if (count === 0) return [];
      count = this.#same(division, count, whole + probe, window);
    }
    for (const crossing of crossings) {
      let cut = bytes.length - crossing;
      while ((bytes[cut] & 0xc0) === 0x80) cut--;
      const text = this.#decode(join(window.bytes, bytes.subarray(0, Math.max(cut, 0))));
      count = text === undefined ? 0 : this.#same(division, count, text, window);
    }
    return division.tokens.slice(0, count);
  }

  /** Of a text that ends inside a character, all before its last word. */
  #untilLastWord(bytes: Uint8Array, context: readonly number[]): readonly number[] {
    let cut = bytes.lastIndexOf(BLANK);
    if (cut > 0 && isBlank(bytes[cut - 1])) cut = 0;
    if (cut <= 0) return [];
    return this.#behind(bytes.subarray(0, cut), context).division?.tokens ?? [];
  }

  /** The beginning of a long text: what ends so far before the cut that nothing beyond it is looked at. */
  #beginning(bytes: Uint8Array, context: readonly number[]): readonly number[] {
    const cut = bytes.subarray(0, LONGEST);
    const head = cut.subarray(0, cut.length - unfinished(cut));
    const { division } = this.#behind(head, context);
    if (!division) return [];
    return division.tokens.filter((_, i) => division.ends[i] <= head.length - BEYOND);
  }

  /** A text's tokens behind as many of those before it as it can be divided behind. */
  #behind(bytes: Uint8Array, context: readonly number[]): { window: Window; division?: Division } {
    for (const size of WINDOWS) {
      const tokens = context.slice(context.length - Math.min(size, context.length));
      const window = { tokens, bytes: join(...tokens.map((token) => this.tokenizer.bytes(token))) };
      const division = this.#after(bytes, window);
      if (division) return { window, division };
    }
    return { window: { tokens: [], bytes: new Uint8Array(0) } };
  }

  /** A text's tokens behind others; nothing where the tokenizer would not have made those others. */
  #after(bytes: Uint8Array, window: Window): Division | undefined {
    const text = this.#decode(join(window.bytes, bytes));
    const all = text === undefined ? undefined : this.#encode(text, window);
    if (!all) return undefined;
    const tokens: number[] = [];
    const ends: number[] = [];
    let end = 0;
    for (let i = this.#anchorTokens.length + window.tokens.length; i < all.length; i++) {
      const spelled = this.tokenizer.bytes(all[i]);
      // A token that is not to stand for text, such as a mark that the text spells, is not forced.
      if (!this.isText(all[i]) || !spelled.every((byte, j) => bytes[end + j] === byte)) break;
      end += spelled.length;
      tokens.push(all[i]);
      ends.push(end);
    }
    return { tokens, ends };
  }

  /** How many of a division's first `count` tokens another text has behind the same window, which is part of it. */
  #same({ tokens }: Division, count: number, text: string, window: Window): number {
    const all = this.#encode(text, window);
    if (!all) return 0;
    const first = this.#anchorTokens.length + window.tokens.length;
    let same = 0;
    while (same < count && all[first + same] === tokens[same]) same++;
    return same;
  }

  /** All tokens of a text that begins with a window; nothing where the tokenizer divides the window otherwise. */
  #encode(text: string, window: Window): number[] | undefined {
    const all = this.tokenizer.encode(this.#anchor + text);
    const anchor = this.#anchorTokens;
    const fixed = anchor.every((token, i) => all[i] === token) &&
      window.tokens.every((token, i) => all[anchor.length + i] === token);
    return fixed ? all : undefined;
  }

  /** Nothing where the bytes begin or end inside a character. */
  #decode(bytes: Uint8Array): string | undefined {
    try {
      return this.#text.decode(bytes);
    } catch {
      return undefined;
    }
  }
}

function join(...parts: readonly Uint8Array[]): Uint8Array {
  let length = 0;
  for (const part of parts) length += part.length;
  const all = new Uint8Array(length);
  length = 0;
  for (const part of parts) {
    all.set(part, length);
    length += part.length;
  }
  return all;
}

function isBlank(byte: number): boolean {
  return byte === BLANK || (byte >= 9 && byte <= 13);
}

/** Tokens by their number, and texts between them by where they stand. */
function* parts(bytes: Uint8Array): Generator<number | { start: number; end: number }> {
  for (let start = 0; start < bytes.length;) {
    const marker = bytes.indexOf(MARKER, start);
    const end = marker < 0 ? bytes.length : marker;
    if (end > start) yield { start, end };
    if (marker < 0) return;
    const close = bytes.indexOf(0x5d, marker);
    if (close < 0) return;
    yield Number(new TextDecoder().decode(bytes.subarray(marker + 2, close)));
    start = close + 1;
  }
}

function probes(next: Uint8Array): string[] {
  const may = (byte: number) => (next[byte >> 3] & (1 << (byte & 7))) !== 0;
  const any = (from: number, to: number) => {
    for (let byte = from; byte <= to; byte++) if (may(byte)) return true;
    return false;
  };
  return PROBES.filter((probe) => {
    const byte = probe.charCodeAt(0);
    if (byte >= 0x80) return any(0xc2, 0xf4);
    if (probe === "a") return any(0x61, 0x7a);
    if (probe === "A") return any(0x41, 0x5a);
    if (probe === "1") return any(0x30, 0x39);
    if (probe === "-") return any(0x21, 0x2f) || any(0x3a, 0x40) || any(0x5b, 0x60) || any(0x7b, 0x7e);
    return may(byte);
  });
}

/** How many bytes at the end are of a character that is not whole. */
function unfinished(bytes: Uint8Array): number {
  for (let count = 1; count <= Math.min(3, bytes.length); count++) {
    const byte = bytes[bytes.length - count];
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return count < length ? count : 0;
  }
  return 0;
}
