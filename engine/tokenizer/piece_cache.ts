/** Longer pieces are rare, and seldom come twice. */
const LONGEST_PIECE = 48;
/** Pieces in each of the two generations: a few MB. */
const GENERATION = 32_768;

/**
 * The tokens of recent pieces. When the young generation is full, it becomes the old one, and what was in that and not
 * asked for since is forgotten.
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
    // A slice of a text keeps the whole text alive, and texts are other people's: what is kept is a copy.
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
