import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import { pairsOf } from "./bpe.ts";
import { appendAll, replaced, symbolsOf } from "./long_pieces.ts";
import { mergePairs } from "./merge.ts";
import type { PairTable } from "./pair_table.ts";
import { PieceCache } from "./split/piece_cache.ts";
import type { PreTokenizer } from "./split/pre_tokenizers.ts";
import { BLANK_MARK, wordEnd } from "./spm.ts";
import { splitText } from "./split/stage.ts";
import { BYTE_TOKENS, TOKEN_TYPE } from "./token_types.ts";
import { lowerOf, runOf, runWithout, SPACE } from "./split/unicode.ts";
import type { Vocabulary } from "./vocabulary.ts";

/**
 * Byte-pair encoding by merges over characters, with a byte fallback. Blanks become blank marks, as in Gemma
 * 4. With "words", texts are split at white space, and the white space is dropped.
 */
export class MarkedBpeEncoder {
  readonly #pairs: PairTable;
  readonly #tokenOfByte: readonly (number | undefined)[]; // [256]
  /** Whether no merge crosses a position before a blank mark, so that words can be encoded separately. */
  readonly #wordsApart: boolean;
  readonly #cache = new PieceCache();
  readonly #utf8 = new TextEncoder();

  constructor(
    merges: readonly string[],
    private readonly vocabulary: Vocabulary,
    private readonly preTokenizer: PreTokenizer,
  ) {
    this.#pairs = pairsOf(merges, vocabulary.ids);
    this.#tokenOfByte = BYTE_TOKENS.map((token) => vocabulary.ids.get(token));
    this.#wordsApart = !merges.some((merge) => /[^▁ ] ?▁/u.test(merge));
  }

  /**
   * Appends the tokens of well-formed text without special tokens. May stop once there are more than `atMost`
   * tokens.
   */
  *encode(text: string, tokens: number[], atMost: number): Paced<void> {
    if (this.preTokenizer.spelling === "words") return yield* this.#encodeWords(text, tokens, atMost);
    const marked = yield* replaced(text, " ", BLANK_MARK);
    let start = 0;
    let pieces = 0;
    for (const stop of yield* splitText(this.preTokenizer.stages, marked)) {
      while (start < stop) {
        if (++pieces % STEPS_PER_OFFER === 0) yield;
        const end = this.#wordsApart ? Math.min(stop, wordEnd(marked, start)) : stop;
        yield* this.#append(marked.slice(start, end), tokens, atMost);
        if (tokens.length > atMost) return;
        start = end;
      }
    }
  }

  *#encodeWords(text: string, tokens: number[], atMost: number): Paced<void> {
    let pieces = 0;
    let start = runOf(SPACE, text, 0, text.length);
    while (start < text.length && tokens.length <= atMost) {
      if (++pieces % STEPS_PER_OFFER === 0) yield;
      const end = runWithout(SPACE, text, start, text.length);
      const word = text.slice(start, end);
      yield* this.#append(this.preTokenizer.lowercase ? small(word) : word, tokens, atMost);
      start = runOf(SPACE, text, end, text.length);
    }
  }

  *#append(piece: string, tokens: number[], atMost: number): Paced<void> {
    let found = this.#cache.get(piece);
    if (!found) {
      found = Int32Array.from(yield* this.#encodePiece(piece));
      this.#cache.set(piece, found);
    }
    if (found.length <= STEPS_PER_OFFER) { for (let i = 0; i < found.length; i++) tokens.push(found[i]); }
    else yield* appendAll(found, tokens, atMost);
  }

  *#encodePiece(piece: string): Paced<number[]> {
    const asWhole = this.preTokenizer.wholePieces === "line breaks" && /^\n+$/.test(piece);
    const whole = asWhole ? this.#tokenOf(piece) : undefined;
    if (whole !== undefined) return [whole];
    // Characters without a token get symbols from -2 down, which never merge and later identify the character.
    const { characters, symbols } = yield* symbolsOf(piece, (character) => this.#tokenOf(character));
    const count = yield* mergePairs(symbols, symbols.length, this.#pairs);
    const tokens: number[] = [];
    for (let i = 0; i < count; i++) {
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      const symbol = symbols[i];
      if (symbol >= 0) tokens.push(symbol);
      else this.#appendBytes(characters[-2 - symbol], tokens);
    }
    return tokens;
  }

  #tokenOf(text: string): number | undefined {
    const id = this.vocabulary.ids.get(text);
    // Plain text must never become a control token.
    return id !== undefined && this.vocabulary.types[id] !== TOKEN_TYPE.CONTROL ? id : undefined;
  }

  /** Appends the byte tokens of a character. Bytes without a token are dropped, as in llama.cpp. */
  #appendBytes(character: string, tokens: number[]): void {
    for (const byte of this.#utf8.encode(character)) {
      const token = this.#tokenOfByte[byte];
      if (token !== undefined) tokens.push(token);
    }
  }
}

/** Returns a word in lower case, mapped letter by letter as in llama.cpp. */
function small(word: string): string {
  return Array.from(word, (character) => String.fromCodePoint(lowerOf(character.codePointAt(0)!))).join("");
}
