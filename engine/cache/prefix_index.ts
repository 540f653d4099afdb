import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import { reusableTokens, type Sequence } from "../schedule/sequence.ts";
import { hashOf } from "./block_hash.ts";

export const NO_BLOCK = -1;

/**
 * Finds full blocks by their chain. A block is found by the hash of its predecessor's hash, the prefix key and its
 * tokens, and used only if its predecessor, key and tokens are really equal.
 */
export class PrefixIndex {
  readonly #tokens: Int32Array; // [blocks, KV_BLOCK_TOKENS]
  readonly #parents: Int32Array; // [blocks]
  readonly #keys: string[]; // [blocks]
  readonly #hashes: (number | undefined)[]; // [blocks], undefined: not indexed
  /** Indexed blocks by hash. */
  readonly #blocks = new Map<number, number>();

  constructor(blocks: number) {
    this.#tokens = new Int32Array(blocks * KV_BLOCK_TOKENS);
    this.#parents = new Int32Array(blocks);
    this.#keys = new Array(blocks).fill("");
    this.#hashes = new Array(blocks).fill(undefined);
  }

  /** Whether a block is indexed under this hash. */
  has(hash: number): boolean {
    return this.#blocks.has(hash);
  }

  /** Returns the hash that the block is indexed under; undefined if it is not indexed. */
  hashOf(block: number): number | undefined {
    return this.#hashes[block];
  }

  /** Returns the indexed blocks of the sequence's prefix, beginning with the first block. */
  findPrefix(sequence: Sequence): number[] {
    const shared: number[] = [];
    const limit = Math.floor(reusableTokens(sequence) / KV_BLOCK_TOKENS);
    let parent = NO_BLOCK;
    for (let position = 0; position < limit; position++) {
      parent = this.find(sequence, position, parent);
      if (parent === NO_BLOCK) break;
      shared.push(parent);
    }
    return shared;
  }

  /** Returns the indexed block with the sequence's tokens at `position` and predecessor `parent`, or NO_BLOCK. */
  find(sequence: Sequence, position: number, parent: number): number {
    const block = this.#blocks.get(hashOf(sequence, position));
    if (block === undefined || this.#parents[block] !== parent) return NO_BLOCK;
    if (this.#keys[block] !== sequence.prefixKey) return NO_BLOCK;
    const ours = position * KV_BLOCK_TOKENS;
    const theirs = block * KV_BLOCK_TOKENS;
    for (let i = 0; i < KV_BLOCK_TOKENS; i++) {
      if (this.#tokens[theirs + i] !== sequence.tokens[ours + i]) return NO_BLOCK;
    }
    return block;
  }

  /** Indexes the sequence's block at `position`; its predecessor is `parent`. */
  insert(sequence: Sequence, position: number, block: number, parent: number): void {
    const hash = hashOf(sequence, position);
    const start = position * KV_BLOCK_TOKENS;
    this.#tokens.set(sequence.tokens.subarray(start, start + KV_BLOCK_TOKENS), block * KV_BLOCK_TOKENS);
    this.#parents[block] = parent;
    this.#keys[block] = sequence.prefixKey;
    this.#hashes[block] = hash;
    this.#blocks.set(hash, block);
  }

  /** Removes an indexed block. */
  remove(block: number): void {
    this.#blocks.delete(this.#hashes[block]!);
    this.#hashes[block] = undefined;
  }
}
