import { pairsOf } from "./bpe.ts";
import { mergePairs } from "./merge.ts";
import type { PairTable } from "./pair_table.ts";
import { PieceCache } from "./piece_cache.ts";
import type { PreTokenizer } from "./pre_tokenizers.ts";
import { BLANK_MARK, wordEnd } from "./spm.ts";
import { splitText } from "./stage.ts";
import { BYTE_TOKENS, TOKEN_TYPE } from "./token_types.ts";
import { lowerOf, runOf, runWithout, SPACE } from "./unicode.ts";
import type { Vocabulary } from "./vocabulary.ts";

/**
 * Byte-pair encoding by merges over characters: what is no token falls back to tokens for its bytes. Blanks are written as blank
 * marks, as in Gemma 4's, or texts are cut at white space, which goes.
 */
export class MarkedBpeEncoder {
  readonly #pairs: PairTable;
  readonly #tokenOfByte: readonly (number | undefined)[]; // [256]
  /** Whether no merge spans the border before a blank mark, so that words may be encoded one by one. */
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

  /** Appends the tokens of a well-formed text without special tokens; leaves off past `atMost` tokens. */
  encode(text: string, tokens: number[], atMost: number): void {
    if (this.preTokenizer.spelling === "words") return this.#encodeWords(text, tokens, atMost);
    const marked = text.replaceAll(" ", BLANK_MARK);
    let start = 0;
    for (const stop of splitText(this.preTokenizer.stages, marked)) {
      while (start < stop) {
        const end = this.#wordsApart ? Math.min(stop, wordEnd(marked, start)) : stop;
        this.#append(marked.slice(start, end), tokens);
        if (tokens.length > atMost) return;
        start = end;
      }
    }
  }

  #encodeWords(text: string, tokens: number[], atMost: number): void {
    let start = runOf(SPACE, text, 0, text.length);
    while (start < text.length && tokens.length <= atMost) {
      const end = runWithout(SPACE, text, start, text.length);
      const word = text.slice(start, end);
      this.#append(this.preTokenizer.lowercase ? small(word) : word, tokens);
      start = runOf(SPACE, text, end, text.length);
    }
  }

  #append(piece: string, tokens: number[]): void {
    let found = this.#cache.get(piece);
    if (!found) {
      found = Int32Array.from(this.#encodePiece(piece));
      this.#cache.set(piece, found);
    }
    for (let i = 0; i < found.length; i++) tokens.push(found[i]);
  }

  #encodePiece(piece: string): number[] {
    const asWhole = this.preTokenizer.wholePieces === "line breaks" && /^\n+$/.test(piece);
    const whole = asWhole ? this.#tokenOf(piece) : undefined;
    if (whole !== undefined) return [whole];
    const characters = [...piece];
    // What is no token is numbered downwards from -2, which never merges, to be found again afterwards.
    const symbols = Int32Array.from(characters, (character, i) => this.#tokenOf(character) ?? -2 - i);
    const count = mergePairs(symbols, symbols.length, this.#pairs);
    const tokens: number[] = [];
    for (const symbol of symbols.subarray(0, count)) {
      if (symbol >= 0) tokens.push(symbol);
      else this.#appendBytes(characters[-2 - symbol], tokens);
    }
    return tokens;
  }

  #tokenOf(text: string): number | undefined {
    const id = this.vocabulary.ids.get(text);
    // Plain text never becomes a control token.
    return id !== undefined && this.vocabulary.types[id] !== TOKEN_TYPE.CONTROL ? id : undefined;
  }

  /** A byte that is no token is left out, as llama.cpp does. */
  #appendBytes(character: string, tokens: number[]): void {
    for (const byte of this.#utf8.encode(character)) {
      const token = this.#tokenOfByte[byte];
      if (token !== undefined) tokens.push(token);
    }
  }
}

/** Letter by letter, as llama.cpp has it. */
function small(word: string): string {
  return Array.from(word, (character) => String.fromCodePoint(lowerOf(character.codePointAt(0)!))).join("");
}
