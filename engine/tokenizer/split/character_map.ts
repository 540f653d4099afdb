import { vocabError } from "../vocabulary.ts";

const KEY = "precompiled_charsmap";
/** Maximum bytes of one replacement, to bound the growth of a text; published maps have up to 33. */
const MAX_REPLACEMENT = 256;

/** The number of bytes to replace, and the bytes that replace them. */
export interface Replacement {
  readonly length: number;
  readonly bytes: Uint8Array;
}

/**
 * SentencePiece's compiled normalization table: the length in bytes of a compact double array, the array,
 * then zero-terminated replacements.
 *
 * An array entry holds the position of its children (bits 10 to 30, times 256 if bit 9 is set) and the byte
 * that leads to it (bits 0 to 7). Bit 8 says whether it has a replacement. The replacement's entry has bit 31
 * set and holds its position.
 *
 * Source: Kanda, "Space- and Time-Efficient String Dictionaries" (2018), and SentencePiece's normalizer.
 */
export class CharacterMap {
  readonly #units: Uint32Array;
  readonly #replacements: Uint8Array;

  /** Reads the table. Throws GgufError(GGUF_VOCAB) if the table's parts do not fit its length. */
  constructor(bytes: Uint8Array) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const arrayBytes = bytes.length < 4 ? NaN : view.getUint32(0, true);
    if (!(arrayBytes >= 4 && arrayBytes % 4 === 0 && 4 + arrayBytes < bytes.length)) {
      const allowed = "a length of 4 to less than what follows it, then that many bytes and the replacements";
      throw vocabError(KEY, `must be ${allowed} (got ${bytes.length} bytes, a length of ${arrayBytes})`);
    }
    this.#units = Uint32Array.from({ length: arrayBytes / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.#replacements = bytes.subarray(4 + arrayBytes);
    if (this.#replacements.at(-1) !== 0) {
      throw vocabError(KEY, `must end with a zero byte (got ${this.#replacements.at(-1)})`);
    }
    for (let start = 0, end = 0; start < this.#replacements.length; start = end + 1) {
      end = this.#replacements.indexOf(0, start);
      if (end - start <= MAX_REPLACEMENT) continue;
      const found = `one of ${end - start} bytes`;
      throw vocabError(KEY, `must have replacements of at most ${MAX_REPLACEMENT} bytes (got ${found})`);
    }
  }

  /** Returns the replacement of the longest known text at `start`; undefined if there is none. */
  find(text: Uint8Array, start: number): Replacement | undefined {
    let length = 0;
    let place = 0;
    let index = childrenOf(this.#unit(0));
    for (let i = start; i < text.length && text[i] !== 0; i++) {
      index ^= text[i];
      const unit = this.#unit(index);
      if ((unit & 0x800000ff) >>> 0 !== text[i]) break;
      index ^= childrenOf(unit);
      if ((unit & 0x100) === 0) continue;
      length = i + 1 - start;
      place = this.#unit(index) & 0x7fffffff;
    }
    if (length === 0) return undefined;
    return { length, bytes: this.#replacements.subarray(place, this.#replacements.indexOf(0, place)) };
  }

  /**
   * Returns an entry of the array. For an index past its end, returns an entry that no byte reaches, so that broken
   * maps are safe.
   */
  #unit(index: number): number {
    return this.#units[index >>> 0] ?? 0x80000000;
  }
}

function childrenOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
