/** Text that must come next, divided into tokens as the tokenizer divides it. */

import type { Tokenizer } from "../tokenizer/types.ts";

/** What the library says of a text that must come next. */
export interface ForcedText {
  /** UTF-8; 0xFF and `[id]` for a token that is no text. */
  readonly bytes: Uint8Array;
  /** From the text's end backwards, in bytes: where a token may begin that goes on past it. */
  readonly crossings: Uint32Array;
  /** A bit for each byte that may follow the text. */
  readonly next: Uint8Array; // [32]
}

const MARKER = 0xff;
/** Most tokens at once; the rest is forced again after them. */
const MOST_TOKENS = 256;
/** A longer text is cut here, in UTF-16 units; what stands beyond is looked at as far as a token may reach. */
const LONGEST = 2048;
const BEYOND = 256;
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

/** Divides forced texts for one vocabulary. */
export class Divider {
  readonly #utf8 = new TextEncoder();
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
      } else if (part.end < forced.bytes.length) {
        const text = this.#text.decode(forced.bytes.subarray(part.start, part.end));
        const division = text.length > LONGEST
          ? this.#longest(text, context)
          : this.#after(text, this.#window(text, context));
        if (!division) break;
        tokens.push(...division.tokens);
        if (text.length > LONGEST) break;
      } else {
        tokens.push(...this.#open(forced, part.start, context));
      }
    }
    return tokens.slice(0, MOST_TOKENS);
  }

  /** Of a text whose end is open, what no later text can change. */
  #open(forced: ForcedText, start: number, context: readonly number[]): readonly number[] {
    const bytes = forced.bytes.subarray(start);
    const whole = bytes.length - unfinished(bytes);
    const text = this.#text.decode(bytes.subarray(0, whole));
    if (text.length > LONGEST) return this.#longest(text, context)?.tokens ?? [];
    if (whole < bytes.length) return this.#untilLastWord(text, context);
    const window = this.#window(text, context);
    const divisions = probes(forced.next).map((probe) => this.#after(text + probe, window));
    divisions.push(this.#after(text, window));
    for (const crossing of forced.crossings) {
      let cut = bytes.length - crossing;
      while ((bytes[cut] & 0xc0) === 0x80) cut--;
      divisions.push(this.#after(this.#text.decode(bytes.subarray(0, cut)), window));
    }
    return common(divisions, bytes.length);
  }

  /** A text that ends inside a character: all before its last word. */
  #untilLastWord(text: string, context: readonly number[]): readonly number[] {
    const cut = text.search(/(?<=[^\s]) [^\s]*$/u);
    if (cut <= 0) return [];
    return this.#after(text.slice(0, cut), this.#window(text, context))?.tokens ?? [];
  }

  /** The beginning of a long text. */
  #longest(text: string, context: readonly number[]): Division | undefined {
    const head = text.slice(0, LONGEST).toWellFormed();
    const division = this.#after(text.slice(0, LONGEST + BEYOND).toWellFormed(), this.#window(head, context));
    return division && { ...division, tokens: common([division], this.#utf8.encode(head).length - BEYOND) };
  }

  /** As many of the tokens before a text as it can be divided behind. */
  #window(text: string, context: readonly number[]): readonly number[] {
    for (const size of WINDOWS) {
      const window = context.slice(context.length - Math.min(size, context.length));
      if (this.#after(text, window)) return window;
    }
    return [];
  }

  /** A text's tokens behind others; nothing where the tokenizer would not have made those others. */
  #after(text: string, window: readonly number[]): Division | undefined {
    const before = this.#textOf(window);
    if (before === undefined) return undefined;
    const all = this.tokenizer.encode(this.#anchor + before + text);
    const fixed = [...this.#anchorTokens, ...window];
    if (!fixed.every((token, i) => all[i] === token)) return undefined;
    const expected = this.#utf8.encode(text);
    const tokens: number[] = [];
    const ends: number[] = [];
    let end = 0;
    for (let i = fixed.length; i < all.length; i++) {
      const bytes = this.tokenizer.bytes(all[i]);
      // A token that is not to stand for text, such as a mark that the text spells, is not forced.
      if (!this.isText(all[i]) || !bytes.every((byte, j) => expected[end + j] === byte)) break;
      end += bytes.length;
      tokens.push(all[i]);
      ends.push(end);
    }
    return { tokens, ends };
  }

  #textOf(tokens: readonly number[]): string | undefined {
    try {
      return this.#text.decode(Uint8Array.from(tokens.flatMap((token) => [...this.tokenizer.bytes(token)])));
    } catch {
      return undefined;
    }
  }
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

/** The tokens that all have, of those that end by `length` bytes. */
function common(divisions: readonly (Division | undefined)[], length: number): readonly number[] {
  const [first] = divisions;
  if (!first) return [];
  let count = first.ends.filter((end) => end <= length).length;
  for (const division of divisions) {
    if (!division) return [];
    let same = 0;
    while (same < count && division.tokens[same] === first.tokens[same]) same++;
    count = same;
  }
  return first.tokens.slice(0, count);
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
