import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import { NONE, TokenTrie } from "./special/token_trie.ts";
import { BYTE_TOKENS, TOKEN_TYPE } from "./token_types.ts";
import { widthAt } from "./split/unicode.ts";
import { vocabError, type Vocabulary } from "./vocabulary.ts";

/** Unit of rounded scores: 1 / SCALE. Tokens with scaled scores at or below LEAST_SCORE are never used. */
const SCALE = 1e4;
const LEAST_SCORE = -2e7;
/** Cost of encoding a character as bytes. */
const BYTES_COST = 1e7;

/**
 * PLaMo 2's and 3's Unigram: the most likely split of the text into tokens. The search runs from the end of the text to
 * its start. Among equally likely splits, the one with the longer first token wins. Unknown characters are encoded as
 * bytes. Source: llama.cpp, src/llama-vocab.cpp (PLAMO2).
 */
export class PlamoEncoder {
  readonly #trie: TokenTrie;
  readonly #costs: Float64Array; // [tokens]
  readonly #tokenOfByte: readonly number[]; // [256]
  readonly #utf8 = new TextEncoder();

  constructor(scores: ArrayLike<number>, { ids, types }: Vocabulary) {
    // Plain text must never become a token of another type.
    const matched: number[] = [TOKEN_TYPE.NORMAL, TOKEN_TYPE.USER_DEFINED, TOKEN_TYPE.UNUSED];
    this.#costs = Float64Array.from(scores, (score) => -rounded(score * SCALE));
    const counts = ([, id]: readonly [string, number]) =>
      matched.includes(types[id]) && this.#costs[id] < -LEAST_SCORE;
    this.#trie = new TokenTrie([...ids].filter(counts));
    this.#tokenOfByte = BYTE_TOKENS.map((token) => {
      const id = ids.get(token);
      if (id === undefined) {
        throw vocabError("tokens", `must have a token for each byte (${token} is missing)`);
      }
      return id;
    });
  }

  /** Appends the tokens of well-formed text without special tokens. */
  *encode(text: string, tokens: number[]): Paced<void> {
    const { found, ends } = yield* this.#best(text);
    let steps = 0;
    for (let start = 0; start < text.length; start = ends[start]) {
      if (++steps % STEPS_PER_OFFER === 0) yield;
      if (found[start] !== NONE) {
        tokens.push(found[start]);
        continue;
      }
      for (const byte of this.#utf8.encode(text.slice(start, ends[start]))) {
        tokens.push(this.#tokenOfByte[byte]);
      }
    }
  }

  /** Returns, for each position, the first token of the best split from there on, and its end. */
  *#best(text: string): Paced<{ found: Int32Array; ends: Int32Array }> {
    const sums = new Float64Array(text.length + 1).fill(Infinity);
    const found = new Int32Array(text.length).fill(NONE);
    const ends = new Int32Array(text.length);
    sums[text.length] = 0;
    for (let start = text.length - 1; start >= 0; start--) {
      if (start % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      if (isInside(text, start)) continue;
      ends[start] = start + widthAt(text, start);
      sums[start] = sums[ends[start]] + BYTES_COST;
      this.#trie.tokensFrom(text, start, (token, end) => {
        const sum = sums[end] + this.#costs[token];
        if (sum > sums[start]) return;
        sums[start] = sum;
        found[start] = token;
        ends[start] = end;
      });
    }
    return { found, ends };
  }
}

/** Returns the nearest integer; halves round away from 0. */
function rounded(value: number): number {
  return Math.sign(value) * Math.round(Math.abs(value));
}

/** Returns whether the position is inside a surrogate pair. */
function isInside(text: string, index: number): boolean {
  return index > 0 && widthAt(text, index - 1) === 2;
}
