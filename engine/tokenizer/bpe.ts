import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import { mergeParts } from "../gguf/vocabulary.ts";
import { CODE_OF_BYTE, codesOfBytes } from "./byte_codes.ts";
import { appendAll } from "./long_pieces.ts";
import { mergePairs } from "./merge.ts";
import { PairTable } from "./pair_table.ts";
import { PieceCache } from "./split/piece_cache.ts";
import type { PreTokenizer } from "./split/pre_tokenizers.ts";
import { splitText } from "./split/stage.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Returns the table of merges by rank. The reader has validated the merges. */
export function pairsOf(merges: readonly string[], ids: ReadonlyMap<string, number>): PairTable {
  const pairs = new PairTable(merges.length);
  for (const [rank, merge] of merges.entries()) {
    const [left, right] = mergeParts(merge);
    pairs.add(ids.get(left)!, ids.get(right)!, rank, ids.get(left + right)!);
  }
  return pairs;
}

/** Byte-level byte-pair encoding, as introduced by GPT-2. */
export class BpeEncoder {
  readonly #pairs: PairTable;
  readonly #tokenOfByte: Int32Array; // [256], -1 if the vocabulary lacks the byte
  /** Number of characters of the longest token. */
  readonly #longest: number;
  readonly #cache = new PieceCache();
  readonly #utf8 = new TextEncoder();

  constructor(
    merges: readonly string[],
    private readonly vocabulary: Vocabulary,
    private readonly preTokenizer: PreTokenizer,
  ) {
    this.#pairs = pairsOf(merges, vocabulary.ids);
    this.#longest = vocabulary.tokens.reduce((most, token) => Math.max(most, token.length), 1);
    this.#tokenOfByte = Int32Array.from(
      CODE_OF_BYTE,
      (code) => vocabulary.ids.get(String.fromCharCode(code)) ?? -1,
    );
  }

  /**
   * Appends the tokens of well-formed text without special tokens. May stop once there are more than `atMost`
   * tokens.
   */
  *encode(text: string, tokens: number[], atMost: number): Paced<void> {
    let start = 0;
    let pieces = 0;
    for (const end of yield* splitText(this.preTokenizer.stages, text)) {
      if (++pieces % STEPS_PER_OFFER === 0) yield;
      const piece = text.slice(start, end);
      let found = this.#cache.get(piece);
      if (!found) {
        found = yield* this.#encodePiece(piece);
        this.#cache.set(piece, found);
      }
      if (found.length <= STEPS_PER_OFFER) { for (let i = 0; i < found.length; i++) tokens.push(found[i]); }
      else yield* appendAll(found, tokens, atMost);
      if (tokens.length > atMost) return;
      start = end;
    }
  }

  *#encodePiece(piece: string): Paced<Int32Array> {
    const bytes = this.#utf8.encode(piece);
    if (this.preTokenizer.wholePieces === "all" && bytes.length <= this.#longest) {
      const id = this.vocabulary.ids.get(codesOfBytes(bytes));
      // Plain text must never become a control token.
      if (id !== undefined && this.vocabulary.types[id] !== TOKEN_TYPE.CONTROL) return Int32Array.of(id);
    }
    const symbols = new Int32Array(bytes.length);
    for (let i = 0; i < bytes.length; i++) {
      symbols[i] = this.#tokenOfByte[bytes[i]];
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
    }
    const merged = symbols.subarray(0, yield* mergePairs(symbols, symbols.length, this.#pairs));
    // Bytes without a token are dropped, as in llama.cpp.
    return merged.includes(-1) ? merged.filter((symbol) => symbol >= 0) : merged.slice();
  }
}
