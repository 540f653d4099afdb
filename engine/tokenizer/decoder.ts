import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import { bytesOfCodes } from "./byte_codes.ts";
import { BLANK_MARK } from "./spm.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import type { DecodeOptions, StreamDecoder } from "./types.ts";
import type { Vocabulary } from "./vocabulary.ts";

const NONE = new Uint8Array(0);
const BLANK = 0x20;

/** How the text of a token is spelled: in byte characters, with marks for blanks, or unchanged. */
export type Spelling = "bytes" | "blank marks" | "words";

/** Decodes tokens to bytes and text. */
export class Decoder {
  readonly #utf8 = new TextEncoder();

  constructor(
    private readonly vocabulary: Vocabulary,
    private readonly spelling: Spelling,
    /** Whether encoding adds a blank before the text, so that decoding must remove it. */
    private readonly blankFirst: boolean,
  ) {}

  /** Returns a token's bytes. Control and unknown tokens have none unless `special`. */
  bytes(token: number, special: boolean): Uint8Array {
    const { tokens, types } = this.vocabulary;
    if (!Number.isInteger(token) || token < 0 || token >= tokens.length) {
      throw new RangeError(`Cannot decode token ${token}: allowed 0 to ${tokens.length - 1}`);
    }
    const text = tokens[token];
    switch (types[token]) {
      case TOKEN_TYPE.NORMAL:
        if (this.spelling === "bytes") return bytesOfCodes(text);
        return this.#utf8.encode(this.spelling === "words" ? text : text.replaceAll(BLANK_MARK, " "));
      case TOKEN_TYPE.BYTE:
        return Uint8Array.of(parseInt(text.slice(3, 5), 16));
      case TOKEN_TYPE.USER_DEFINED:
        return this.#utf8.encode(text);
      case TOKEN_TYPE.CONTROL:
      case TOKEN_TYPE.UNKNOWN:
        return special ? this.#utf8.encode(text) : NONE;
      default:
        return NONE;
    }
  }

  /** Returns the text of all tokens, equal to the output of `stream`. */
  *decode(tokens: Iterable<number>, options: DecodeOptions): Paced<string> {
    const bytesOf = this.#reader(options);
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let text = "";
    let parts: Uint8Array[] = [];
    for (const token of tokens) {
      if (parts.push(bytesOf(token)) < STEPS_PER_OFFER) continue;
      text += decoder.decode(concat(parts), { stream: true });
      parts = [];
      yield;
    }
    return text + decoder.decode(concat(parts));
  }

  stream(options: DecodeOptions): StreamDecoder {
    const bytesOf = this.#reader(options);
    const characters = new CharacterStream();
    return { push: (token) => characters.push(bytesOf(token)), end: () => characters.end() };
  }

  /** Returns a function that gives each token's bytes, without the blank that encoding added before the first token. */
  #reader({ special = false, continuation = false }: DecodeOptions): (token: number) => Uint8Array {
    let first = this.blankFirst && !continuation;
    return (token) => {
      const bytes = this.bytes(token, special);
      const strip = first && bytes[0] === BLANK;
      first = false;
      return strip ? bytes.subarray(1) : bytes;
    };
  }
}

/**
 * Turns bytes into whole characters. Invalid UTF-8 becomes U+FFFD, as in a TextDecoder that receives all
 * bytes at once.
 */
class CharacterStream {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #held = NONE;

  push(bytes: Uint8Array): string {
    if (bytes.length === 0) return "";
    const all = this.#held.length === 0 ? bytes : concat([this.#held, bytes]);
    const whole = all.length - unfinished(all);
    this.#held = all.slice(whole);
    return whole === 0 ? "" : this.#decoder.decode(all.subarray(0, whole));
  }

  end(): string {
    const text = this.#decoder.decode(this.#held);
    this.#held = NONE;
    return text;
  }
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let length = 0;
  for (const part of parts) {
    all.set(part, length);
    length += part.length;
  }
  return all;
}

/** Returns the number of bytes at the end, at most three, that may still become a character. */
function unfinished(bytes: Uint8Array): number {
  for (let count = 1; count <= Math.min(3, bytes.length); count++) {
    const at = bytes.length - count;
    const lead = bytes[at];
    if ((lead & 0xc0) === 0x80) continue;
    const length = lead >= 0xf0 && lead <= 0xf4
      ? 4
      : lead >= 0xe0 && lead <= 0xef
      ? 3
      : lead >= 0xc2 && lead <= 0xdf
      ? 2
      : 1;
    if (count >= length) return 0;
    return count === 1 || maySecond(lead, bytes[at + 1]) ? count : 0;
  }
  return 0;
}

/**
 * Returns whether the second byte of a UTF-8 sequence may follow the first. Excludes overlong forms, surrogates and
 * code points above U+10FFFF.
 */
function maySecond(lead: number, second: number): boolean {
  if (lead === 0xe0) return second >= 0xa0;
  if (lead === 0xed) return second <= 0x9f;
  if (lead === 0xf0) return second >= 0x90;
  if (lead === 0xf4) return second <= 0x8f;
  return true;
}
