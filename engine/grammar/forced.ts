/** Splits forced text into tokens as the tokenizer would. */

import type { Tokenizer } from "../tokenizer/types.ts";

/** The grammar library's answer about text that must come next. */
export interface ForcedText {
  /** Forced text in UTF-8; 0xFF and `[id]` stand for a token that is not text. */
  readonly bytes: Uint8Array;
  /** Possible starts of a token that extends past the forced text, in bytes before the text's end. */
  readonly crossings: Uint32Array;
  /** Bytes that may follow the forced text, one bit each. */
  readonly next: Uint8Array; // [32]
}

const MARKER = 0xff;
const BLANK = 0x20;
/** Maximum forced tokens per call; the next call returns the rest. */
const MOST_TOKENS = 256;
/**
 * Bytes after which a longer forced text is cut. Tokens that end within BEYOND bytes of the cut are not forced yet,
 * because a token may cross it.
 */
const LONGEST = 4096;
const BEYOND = 1024;
/**
 * Numbers of preceding tokens with which the text is split. If the tokenizer would not produce those tokens, the next
 * number is tried.
 */
const WINDOWS = [8, 1, 0];

/** One character per class that pre-tokenizers treat alike. It stands for its class if that class may follow. */
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
  /** End of each token in the text, in bytes. */
  readonly ends: readonly number[];
}

/** The preceding tokens with which a text is split. */
interface Window {
  readonly tokens: readonly number[];
  readonly bytes: Uint8Array;
}

/** Splits forced texts into tokens of one vocabulary. */
export class Divider {
  readonly #text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** Text to put before a text that the tokenizer would otherwise treat as the start of a prompt. */
  readonly #anchor: string;
  readonly #anchorTokens: readonly number[];

  /** `isText` tells whether a token may stand for text. */
  constructor(private readonly tokenizer: Tokenizer, private readonly isText: (token: number) => boolean) {
    const alone = tokenizer.encode("a");
    const blankFirst = alone.length > 0 && tokenizer.bytes(alone[0])[0] === 0x20;
    this.#anchor = blankFirst ? "\n" : "";
    this.#anchorTokens = tokenizer.encode(this.#anchor);
  }

  /**
   * Returns the tokens that the tokenizer makes of the text after `history`, for any continuation. It leaves out text
   * that may still join a later token. The result depends only on the answer's own tokens and the text.
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

  /** Returns the tokens of a text that no following text can change. */
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

  /** Returns the tokens before the last word of a text that ends inside a character. */
  #untilLastWord(bytes: Uint8Array, context: readonly number[]): readonly number[] {
    let cut = bytes.lastIndexOf(BLANK);
    if (cut > 0 && isBlank(bytes[cut - 1])) cut = 0;
    if (cut <= 0) return [];
    return this.#behind(bytes.subarray(0, cut), context).division?.tokens ?? [];
  }

  /**
   * Returns the first tokens of a long text: those far enough before the cut to be independent of the text after it.
   */
  #beginning(bytes: Uint8Array, context: readonly number[]): readonly number[] {
    const cut = bytes.subarray(0, LONGEST);
    const head = cut.subarray(0, cut.length - unfinished(cut));
    const { division } = this.#behind(head, context);
    if (!division) return [];
    return division.tokens.filter((_, i) => division.ends[i] <= head.length - BEYOND);
  }

  /** Returns a text split together with the largest possible number of preceding tokens. */
  #behind(bytes: Uint8Array, context: readonly number[]): { window: Window; division?: Division } {
    for (const size of WINDOWS) {
      const tokens = context.slice(context.length - Math.min(size, context.length));
      const window = { tokens, bytes: join(...tokens.map((token) => this.tokenizer.bytes(token))) };
      const division = this.#after(bytes, window);
      if (division) return { window, division };
    }
    return { window: { tokens: [], bytes: new Uint8Array(0) } };
  }

  /**
   * Returns a text split after the tokens of `window`; undefined if the tokenizer would not produce the window's
   * tokens.
   */
  #after(bytes: Uint8Array, window: Window): Division | undefined {
    const text = this.#decode(join(window.bytes, bytes));
    const all = text === undefined ? undefined : this.#encode(text, window);
    if (!all) return undefined;
    const tokens: number[] = [];
    const ends: number[] = [];
    let end = 0;
    for (let i = this.#anchorTokens.length + window.tokens.length; i < all.length; i++) {
      const spelled = this.tokenizer.bytes(all[i]);
      // A token that must not stand for text (for example a mark that the text spells) is not forced.
      if (!this.isText(all[i]) || !spelled.every((byte, j) => bytes[end + j] === byte)) break;
      end += spelled.length;
      tokens.push(all[i]);
      ends.push(end);
    }
    return { tokens, ends };
  }

  /** Returns the number of the first `count` tokens that stay the same in `text`, which begins with the window. */
  #same({ tokens }: Division, count: number, text: string, window: Window): number {
    const all = this.#encode(text, window);
    if (!all) return 0;
    const first = this.#anchorTokens.length + window.tokens.length;
    let same = 0;
    while (same < count && all[first + same] === tokens[same]) same++;
    return same;
  }

  /**
   * Returns all tokens of a text that begins with the window; undefined if the tokenizer splits the window differently.
   */
  #encode(text: string, window: Window): number[] | undefined {
    const all = this.tokenizer.encode(this.#anchor + text);
    const anchor = this.#anchorTokens;
    const fixed = anchor.every((token, i) => all[i] === token) &&
      window.tokens.every((token, i) => all[anchor.length + i] === token);
    return fixed ? all : undefined;
  }

  /** Returns the bytes as text; undefined if they begin or end inside a character. */
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

/** Yields tokens by number, and the texts between them by position. */
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

/** Returns the number of bytes at the end that belong to an incomplete character. */
function unfinished(bytes: Uint8Array): number {
  for (let count = 1; count <= Math.min(3, bytes.length); count++) {
    const byte = bytes[bytes.length - count];
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return count < length ? count : 0;
  }
  return 0;
}
