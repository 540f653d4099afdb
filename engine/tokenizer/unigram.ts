import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import type { CharacterMap } from "./split/character_map.ts";
import { BLANK_MARK } from "./spm.ts";
import { NONE, TokenTrie } from "./special/token_trie.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { widthAt } from "./split/unicode.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Cost of an unknown character, in addition to that of the least likely token. */
const UNKNOWN_PENALTY = 10;

const BLANK = 0x20;

export interface UnigramRules {
  /** SentencePiece's compiled normalization; undefined if texts stay unchanged. */
  readonly characters: CharacterMap | undefined;
  /** Whether to add a blank before the first word. */
  readonly blankFirst: boolean;
  /** Whether to merge runs of blanks into one, and remove them at both ends. */
  readonly mergeBlanks: boolean;
}

/** SentencePiece's Unigram: the most likely split of the text into tokens. */
export class UnigramEncoder {
  readonly #trie: TokenTrie;
  readonly #scores: Float64Array; // [tokens]
  readonly #unknown: number;
  readonly #unknownScore: number;

  constructor(scores: ArrayLike<number>, vocabulary: Vocabulary, private readonly rules: UnigramRules) {
    const { ids, types, unknown } = vocabulary;
    const matched: number[] = [TOKEN_TYPE.NORMAL, TOKEN_TYPE.USER_DEFINED, TOKEN_TYPE.UNUSED];
    this.#trie = new TokenTrie([...ids].filter(([, id]) => matched.includes(types[id])));
    this.#scores = Float64Array.from(
      scores,
      (score, id) => types[id] === TOKEN_TYPE.USER_DEFINED ? 0 : score,
    );
    this.#unknown = unknown ?? NONE;
    let least = Infinity;
    for (const [id, type] of types.entries()) {
      if (type === TOKEN_TYPE.NORMAL) least = Math.min(least, scores[id]);
    }
    this.#unknownScore = Math.fround(least - UNKNOWN_PENALTY);
  }

  /** Appends the tokens of well-formed text without special tokens. */
  *encode(text: string, tokens: number[]): Paced<void> {
    const normal = yield* normalize(text, this.rules);
    const { found, starts } = yield* this.#best(normal);
    const reversed: number[] = [];
    for (let end = normal.length; end > 0; end = starts[end]) {
      // Adjacent unknown characters become a single unknown token.
      if (found[end] === this.#unknown && reversed.at(-1) === this.#unknown) continue;
      reversed.push(found[end]);
      if (reversed.length % STEPS_PER_OFFER === 0) yield;
    }
    for (let i = reversed.length - 1; i >= 0; i--) {
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      if (reversed[i] !== NONE) tokens.push(reversed[i]);
    }
  }

  /** Returns, for each position, the last token of the best split up to it, and its start. */
  *#best(text: string): Paced<{ found: Int32Array; starts: Int32Array }> {
    const sums = new Float64Array(text.length + 1).fill(-Number.MAX_VALUE);
    const found = new Int32Array(text.length + 1).fill(this.#unknown);
    const starts = new Int32Array(text.length + 1);
    sums[0] = 0;
    let steps = 0;
    for (let start = 0; start < text.length;) {
      if (++steps % STEPS_PER_OFFER === 0) yield;
      const next = start + widthAt(text, start);
      const take = (token: number, end: number, score: number) => {
        if (!(sums[start] + score > sums[end])) return;
        sums[end] = sums[start] + score;
        found[end] = token;
        starts[end] = start;
      };
      let known = false;
      this.#trie.tokensFrom(text, start, (token, end) => {
        known ||= end === next;
        take(token, end, this.#scores[token]);
      });
      if (!known) take(this.#unknown, next, this.#unknownScore);
      start = next;
    }
    return { found, starts };
  }
}

/** Returns the text after normalization by the character map, with blank marks for blanks. */
function* normalize(text: string, { characters, blankFirst, mergeBlanks }: UnigramRules): Paced<string> {
  const bytes = new TextEncoder().encode(text);
  const mark = new TextEncoder().encode(BLANK_MARK);
  const normal = new ByteList(bytes.length + bytes.length / 2 + 16);
  let marked = false;
  let inWord = false;
  const push = (byte: number) => {
    if (byte === BLANK) {
      inWord = false;
      if (!mergeBlanks) normal.push(mark, 0, mark.length);
      return;
    }
    if (!inWord && (mergeBlanks || (blankFirst && !marked))) {
      normal.push(mark, 0, mark.length);
      marked = true;
    }
    inWord = true;
    normal.add(byte);
  };
  let steps = 0;
  for (let i = 0; i < bytes.length;) {
    if (++steps % STEPS_PER_OFFER === 0) yield;
    const replaced = characters?.find(bytes, i);
    if (replaced) {
      replaced.bytes.forEach(push);
      i += replaced.length;
    } else {
      do push(bytes[i++]); while ((bytes[i] & 0xc0) === 0x80);
    }
  }
  return normal.text();
}

/** A growing list of bytes. */
class ByteList {
  #bytes: Uint8Array<ArrayBuffer>;
  #length = 0;

  constructor(expected: number) {
    this.#bytes = new Uint8Array(Math.ceil(expected));
  }

  add(byte: number): void {
    if (this.#length === this.#bytes.length) this.#grow();
    this.#bytes[this.#length++] = byte;
  }

  push(bytes: Uint8Array, start: number, end: number): void {
    for (let i = start; i < end; i++) this.add(bytes[i]);
  }

  text(): string {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.#bytes.subarray(0, this.#length));
  }

  #grow(): void {
    const larger = new Uint8Array(2 * this.#bytes.length + 16);
    larger.set(this.#bytes);
    this.#bytes = larger;
  }
}
