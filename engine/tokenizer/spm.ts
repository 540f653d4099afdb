import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import { appendAll, replaced, symbolsOf } from "./long_pieces.ts";
import { mergePairs } from "./merge.ts";
import { PairTable } from "./pair_table.ts";
import { PieceCache } from "./split/piece_cache.ts";
import { BYTE_TOKENS, TOKEN_TYPE } from "./token_types.ts";
import { vocabError, type Vocabulary } from "./vocabulary.ts";

/**
 * Maximum work of splitting each token at every position: the sum of squared lengths. 262,144 tokens of 8 characters
 * need 2^24.
 */
const MAX_CUT_WORK = 1 << 28;

/** Character that represents a blank in tokens. */
export const BLANK_MARK = "▁";

/** Returns each token's rank by score, highest first. Tokens of equal score share a rank. */
function placesByScore(scores: ArrayLike<number>): Int32Array {
  const order = Int32Array.from(scores, (_, id) => id).sort((a, b) => scores[b] - scores[a]);
  const places = new Int32Array(scores.length);
  for (let i = 1; i < order.length; i++) {
    const same = scores[order[i]] === scores[order[i - 1]];
    places[order[i]] = same ? places[order[i - 1]] : i;
  }
  return places;
}

/**
 * SentencePiece's byte-pair encoding by score, with byte fallback: neighbours merge if their joined text is a
 * token, the highest score first.
 */
export class SpmEncoder {
  readonly #pairs: PairTable;
  /** Characters that occur only inside tokens. Their ids follow the ids of the tokens. */
  readonly #parts = new Map<string, number>();
  readonly #partTexts: string[] = [];
  /**
   * Tokens for the bytes of unknown characters; undefined if the vocabulary has neither the byte nor an unknown token.
   */
  readonly #tokenOfByte: readonly (number | undefined)[]; // [256]
  /** Whether no token crosses the position before a blank mark, so that words can be encoded separately. */
  readonly #wordsApart: boolean;
  readonly #cache = new PieceCache();
  readonly #utf8 = new TextEncoder();

  constructor(scores: ArrayLike<number>, private readonly vocabulary: Vocabulary) {
    const { types, ids, unknown } = vocabulary;
    const places = placesByScore(scores);
    // Plain text must never become a control token.
    const mergeable = [...ids].filter(([, id]) => types[id] !== TOKEN_TYPE.CONTROL);
    const work = mergeable.reduce((sum, [text]) => sum + text.length ** 2, 0);
    if (work > MAX_CUT_WORK) {
      throw vocabError(
        "tokens",
        `the squares of their lengths must add up to at most ${MAX_CUT_WORK} (got ${work})`,
      );
    }
    this.#pairs = new PairTable(4 * mergeable.length);
    for (const [text, id] of mergeable) this.#addPairs(text, id, places[id]);
    this.#wordsApart = !mergeable.some(([text]) => /[^▁]▁/u.test(text));
    this.#tokenOfByte = BYTE_TOKENS.map((token) => ids.get(token) ?? unknown);
  }

  /**
   * Appends the tokens of well-formed text without special tokens. May stop once there are more than `atMost`
   * tokens.
   */
  *encode(text: string, tokens: number[], atMost: number): Paced<void> {
    const marked = yield* replaced(text, " ", BLANK_MARK);
    let pieces = 0;
    for (let start = 0, end = 0; start < marked.length; start = end) {
      if (++pieces % STEPS_PER_OFFER === 0) yield;
      end = this.#wordsApart ? wordEnd(marked, start) : marked.length;
      const piece = marked.slice(start, end);
      let found = this.#cache.get(piece);
      if (!found) {
        found = Int32Array.from(yield* this.#encodePiece(piece));
        this.#cache.set(piece, found);
      }
      if (found.length <= STEPS_PER_OFFER) { for (let i = 0; i < found.length; i++) tokens.push(found[i]); }
      else yield* appendAll(found, tokens, atMost);
      if (tokens.length > atMost) return;
    }
  }

  /** Adds every pair of symbols that forms the token to the table. */
  #addPairs(text: string, id: number, place: number): void {
    const characters = [...text];
    const last = characters.length - 1;
    for (let i = 1, cut = 0; i <= last; i++) {
      cut += characters[i - 1].length;
      const left = i === 1 ? this.#symbolOf(characters[0], true) : this.#tokenOf(text.slice(0, cut));
      const right = i === last ? this.#symbolOf(characters[last], true) : this.#tokenOf(text.slice(cut));
      if (left !== undefined && right !== undefined) this.#pairs.add(left, right, place, id);
    }
  }

  #tokenOf(text: string): number | undefined {
    const id = this.vocabulary.ids.get(text);
    return id !== undefined && this.vocabulary.types[id] !== TOKEN_TYPE.CONTROL ? id : undefined;
  }

  /** Returns a character's symbol. With `add`, a character without a token gets a new id. */
  #symbolOf(character: string, add: boolean): number | undefined {
    const known = this.#tokenOf(character) ?? this.#parts.get(character);
    if (known !== undefined || !add) return known;
    const symbol = this.vocabulary.tokens.length + this.#partTexts.length;
    this.#parts.set(character, symbol);
    this.#partTexts.push(character);
    return symbol;
  }

  *#encodePiece(piece: string): Paced<number[]> {
    // Characters that occur in no token get symbols from -2 down, which never merge and later identify the character.
    const { characters, symbols } = yield* symbolsOf(piece, (character) => this.#symbolOf(character, false));
    const count = yield* mergePairs(symbols, symbols.length, this.#pairs);
    const tokens: number[] = [];
    for (let i = 0; i < count; i++) {
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      const symbol = symbols[i];
      if (symbol < 0) this.#appendBytes(characters[-2 - symbol], tokens);
      else if (symbol < this.vocabulary.tokens.length) tokens.push(symbol);
      else this.#appendBytes(this.#partTexts[symbol - this.vocabulary.tokens.length], tokens);
    }
    return tokens;
  }

  #appendBytes(character: string, tokens: number[]): void {
    for (const byte of this.#utf8.encode(character)) {
      const token = this.#tokenOfByte[byte];
      if (token !== undefined) tokens.push(token);
    }
  }
}

/** Returns the end of the blank marks at `start` and the word after them. */
export function wordEnd(text: string, start: number): number {
  let index = start;
  while (text[index] === BLANK_MARK) index++;
  const next = text.indexOf(BLANK_MARK, index);
  return next < 0 ? text.length : next;
}
