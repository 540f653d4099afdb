/** Maximum length of a cached piece; longer pieces rarely repeat. */
const LONGEST_PIECE = 48;
/** Number of pieces in each of the two generations; a few MB. */
const GENERATION = 32_768;

/**
 * Caches the tokens of recent pieces. When the young generation is full, it replaces the old one. Old pieces
 * that were not requested since are dropped.
 */
export class PieceCache {
  #young = new Map<string, Int32Array>();
  #old = new Map<string, Int32Array>();

  get(piece: string): Int32Array | undefined {
    const young = this.#young.get(piece);
    if (young) return young;
    const old = this.#old.get(piece);
    if (old) this.#put(piece, old);
    return old;
  }

  set(piece: string, tokens: Int32Array): void {
    // The key is a copy, because a slice would keep the whole request text in memory.
    if (piece.length <= LONGEST_PIECE) this.#put(` ${piece}`.slice(1), tokens);
  }

  #put(piece: string, tokens: Int32Array): void {
    if (this.#young.size >= GENERATION) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(piece, tokens);
  }
}
