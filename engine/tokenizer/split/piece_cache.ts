/** Longer pieces are rare and seldom repeat. */
const LONGEST_PIECE = 48;
/** Pieces in each of the two generations; a few MB. */
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
    // A slice would keep the whole request text in memory, so the key is a copy.
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
