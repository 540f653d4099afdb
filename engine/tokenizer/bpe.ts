import { quote } from "../gguf/errors.ts";
import type { Metadata } from "../gguf/types.ts";
import { CODE_OF_BYTE, codesOfBytes } from "./byte_codes.ts";
import { mergePairs } from "./merge.ts";
import { PairTable } from "./pair_table.ts";
import { PieceCache } from "./piece_cache.ts";
import type { PreTokenizer } from "./pre_tokenizers.ts";
import { splitText } from "./stage.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { vocabError, type Vocabulary } from "./vocabulary.ts";

const MAX_MERGES = 1 << 21;

/** Reads `tokenizer.ggml.merges`: "left right" by rank. Throws GgufError(GGUF_VOCAB) where one names no token. */
function readMerges(metadata: Metadata, ids: ReadonlyMap<string, number>): PairTable {
  const merges = metadata.getStrings("tokenizer.ggml.merges");
  if (!merges || merges.length > MAX_MERGES) {
    throw vocabError("merges", `found ${merges?.length ?? "no"} merges, allowed 0 to ${MAX_MERGES}`);
  }
  const pairs = new PairTable(merges.length);
  for (const [rank, merge] of merges.entries()) {
    const blank = merge.indexOf(" ", 1);
    const left = ids.get(merge.slice(0, blank));
    const right = ids.get(merge.slice(blank + 1));
    const merged = ids.get(merge.slice(0, blank) + merge.slice(blank + 1));
    if (blank < 0 || left === undefined || right === undefined || merged === undefined) {
      throw vocabError(
        "merges",
        `found ${quote(merge)} as merge ${rank}, allowed two tokens that make a third`,
      );
    }
    pairs.add(left, right, rank, merged);
  }
  return pairs;
}

/** Byte-level byte-pair encoding, as GPT-2 introduced it. */
export class BpeEncoder {
  readonly #pairs: PairTable;
  readonly #tokenOfByte: Int32Array; // [256], -1 where the vocabulary lacks the byte
  readonly #cache = new PieceCache();
  readonly #utf8 = new TextEncoder();

  constructor(
    metadata: Metadata,
    private readonly vocabulary: Vocabulary,
    private readonly preTokenizer: PreTokenizer,
  ) {
    this.#pairs = readMerges(metadata, vocabulary.ids);
    this.#tokenOfByte = Int32Array.from(
      CODE_OF_BYTE,
      (code) => vocabulary.ids.get(String.fromCharCode(code)) ?? -1,
    );
  }

  /** Appends the tokens of a well-formed text without special tokens. */
  encode(text: string, tokens: number[]): void {
    let start = 0;
    for (const end of splitText(this.preTokenizer.stages, text)) {
      const piece = text.slice(start, end);
      let found = this.#cache.get(piece);
      if (!found) {
        found = this.#encodePiece(piece);
        this.#cache.set(piece, found);
      }
      for (let i = 0; i < found.length; i++) tokens.push(found[i]);
      start = end;
    }
  }

  #encodePiece(piece: string): Int32Array {
    const bytes = this.#utf8.encode(piece);
    if (this.preTokenizer.wholePieces) {
      const id = this.vocabulary.ids.get(codesOfBytes(bytes));
      // Plain text never becomes a control token.
      if (id !== undefined && this.vocabulary.types[id] !== TOKEN_TYPE.CONTROL) return Int32Array.of(id);
    }
    const symbols = new Int32Array(bytes.length);
    for (let i = 0; i < bytes.length; i++) symbols[i] = this.#tokenOfByte[bytes[i]];
    const merged = symbols.subarray(0, mergePairs(symbols, symbols.length, this.#pairs));
    // A byte that is no token is left out, as llama.cpp does.
    return merged.includes(-1) ? merged.filter((symbol) => symbol >= 0) : merged.slice();
  }
}
