import { KV_BLOCK_TOKENS } from "./backend/backend.ts";
import type { RecurrentStates } from "./recurrent_state.ts";
import { grown, isScoring, type Sequence } from "./sequence.ts";

const NO_BLOCK = -1;

/**
 * The pool of KV blocks: who holds which, and which full blocks later requests can share.
 *
 * A sequence holds blocks for the tokens that it has, prompt and answer so far, and takes another when the last is full.
 *
 * Full blocks form chains: a block is found by the hash of its predecessor's hash, the salt and its tokens, and taken
 * only if its predecessor, salt and tokens are really the same. Blocks that nobody holds stay in the index, and are
 * given up least recently used first. Whoever holds a block holds all before it in the chain, and blocks are let go
 * from the last to the first: so a block never leaves the index before its successors, and a chain is never broken.
 */
export class KvCache {
  readonly #total: number;
  readonly #holders: Int32Array; // [blocks]
  readonly #tokens: Int32Array; // [blocks, KV_BLOCK_TOKENS], of indexed blocks
  readonly #parents: Int32Array; // [blocks], of indexed blocks
  readonly #salts: string[]; // [blocks], of indexed blocks
  readonly #hashes: (number | undefined)[]; // [blocks], undefined: not indexed
  readonly #index = new Map<number, number>();
  /** Blocks without content worth keeping. */
  readonly #free: number[] = [];
  /** Indexed blocks that nobody holds, least recently used first. */
  readonly #idle = new Set<number>();

  /** `states` go along with the blocks, of models with recurrent layers. */
  constructor(blocks: number, private readonly states?: RecurrentStates) {
    this.#total = blocks;
    this.#holders = new Int32Array(blocks);
    this.#tokens = new Int32Array(blocks * KV_BLOCK_TOKENS);
    this.#parents = new Int32Array(blocks);
    this.#salts = new Array(blocks).fill("");
    this.#hashes = new Array(blocks).fill(undefined);
    for (let block = blocks - 1; block >= 0; block--) this.#free.push(block);
  }

  get total(): number {
    return this.#total;
  }

  /** Blocks that sequences hold. */
  get used(): number {
    return this.#total - this.available;
  }

  /** Blocks that nobody holds; what they keep for later requests is given up when they are taken. */
  get available(): number {
    return this.#free.length + this.#idle.size;
  }

  /** How many blocks are wanting to admit the sequence and still have `spare` left; it fits when that is 0 or less. */
  missing(sequence: Sequence, spare: number): number {
    let held = 0;
    for (const block of this.#usable(this.#findPrefix(sequence))) if (this.#holders[block] > 0) held++;
    return blocksFor(sequence.length) - held + spare - this.available;
  }

  /** Gives the sequence blocks for all its tokens, those of its prefix that are there already included. They must fit. */
  admit(sequence: Sequence): void {
    const known = this.#findPrefix(sequence);
    const shared = this.#usable(known);
    for (const block of shared) this.#hold(block);
    sequence.blocks = new Int32Array(blocksFor(sequence.length));
    sequence.blocks.set(shared);
    sequence.blockCount = shared.length;
    sequence.indexed = shared.length;
    sequence.cached = shared.length * KV_BLOCK_TOKENS;
    this.states?.start(sequence, shared, known.length);
    if (!this.extend(sequence, sequence.length)) throw new Error("A sequence was admitted that does not fit");
  }

  /** Takes blocks until the sequence has room for `tokens`. False, and nothing done, when there are not enough. */
  extend(sequence: Sequence, tokens: number): boolean {
    const wanted = blocksFor(tokens);
    if (wanted - sequence.blockCount > this.available) return false;
    while (sequence.blockCount < wanted) {
      const { blocks, blockCount, maxLength } = sequence;
      if (blockCount === blocks.length) sequence.blocks = grown(blocks, blocksFor(maxLength));
      const block = this.#takeFree();
      this.#holders[block] = 1;
      sequence.blocks[sequence.blockCount++] = block;
    }
    return true;
  }

  /** Makes the blocks that have become full (`cached` has moved) findable for others. */
  share(sequence: Sequence): void {
    while ((sequence.indexed + 1) * KV_BLOCK_TOKENS <= sequence.cached) {
      const position = sequence.indexed;
      const block = sequence.blocks[position];
      const parent = position === 0 ? NO_BLOCK : sequence.blocks[position - 1];
      const known = this.#find(sequence, position, parent);
      if (known !== NO_BLOCK) {
        // Someone else was first: hold that one, so that each chain is in the pool once.
        this.#hold(known);
        this.#letGo(block);
        sequence.blocks[position] = known;
      } else if (this.#index.has(hashOf(sequence, position))) {
        return; // Other tokens have the same hash: this chain cannot be indexed.
      } else {
        this.#insert(sequence, position, block, parent);
      }
      sequence.indexed++;
    }
  }

  /** Gives back all that the sequence holds; what is indexed stays findable while there is room. */
  release(sequence: Sequence): void {
    this.states?.release(sequence);
    for (let i = sequence.blockCount - 1; i >= 0; i--) this.#letGo(sequence.blocks[i]);
    sequence.blocks = new Int32Array(0);
    sequence.blockCount = 0;
    sequence.indexed = 0;
    sequence.cached = 0;
  }

  /** Whether `running` computes what `waiting` could share once it is there. */
  isComputing(running: Sequence, waiting: Sequence): boolean {
    if (this.states) return this.#willSave(running, waiting, this.states);
    const position = Math.floor(running.cached / KV_BLOCK_TOKENS);
    const end = (position + 1) * KV_BLOCK_TOKENS;
    if (end > running.length || end > reusableTokens(waiting)) return false;
    const hash = hashOf(running, position);
    return hash === hashOf(waiting, position) && !this.#index.has(hash);
  }

  /** With recurrent states: whether the edge where the two part is still ahead. It is then where a snapshot is taken. */
  #willSave(running: Sequence, waiting: Sequence, states: RecurrentStates): boolean {
    const limit = Math.floor(Math.min(running.length, reusableTokens(waiting)) / KV_BLOCK_TOKENS);
    let common = 0;
    while (common < limit && hashOf(running, common) === hashOf(waiting, common)) common++;
    const edge = common * KV_BLOCK_TOKENS;
    if (edge <= running.cached || common <= states.usable(this.#findPrefix(waiting))) return false;
    states.mark(running, edge);
    return true;
  }

  /** Those of a chain's leading blocks that a sequence can continue from. */
  #usable(known: number[]): number[] {
    return this.states ? known.slice(0, this.states.usable(known)) : known;
  }

  #findPrefix(sequence: Sequence): number[] {
    const shared: number[] = [];
    const limit = Math.floor(reusableTokens(sequence) / KV_BLOCK_TOKENS);
    let parent = NO_BLOCK;
    for (let position = 0; position < limit; position++) {
      parent = this.#find(sequence, position, parent);
      if (parent === NO_BLOCK) break;
      shared.push(parent);
    }
    return shared;
  }

  /** The indexed block with the sequence's tokens at `position` and the given predecessor. */
  #find(sequence: Sequence, position: number, parent: number): number {
    const block = this.#index.get(hashOf(sequence, position));
    if (block === undefined || this.#parents[block] !== parent) return NO_BLOCK;
    if (this.#salts[block] !== sequence.salt) return NO_BLOCK;
    const ours = position * KV_BLOCK_TOKENS;
    const theirs = block * KV_BLOCK_TOKENS;
    for (let i = 0; i < KV_BLOCK_TOKENS; i++) {
      if (this.#tokens[theirs + i] !== sequence.tokens[ours + i]) return NO_BLOCK;
    }
    return block;
  }

  #insert(sequence: Sequence, position: number, block: number, parent: number): void {
    const hash = hashOf(sequence, position);
    const start = position * KV_BLOCK_TOKENS;
    this.#tokens.set(sequence.tokens.subarray(start, start + KV_BLOCK_TOKENS), block * KV_BLOCK_TOKENS);
    this.#parents[block] = parent;
    this.#salts[block] = sequence.salt;
    this.#hashes[block] = hash;
    this.#index.set(hash, block);
  }

  #hold(block: number): void {
    if (this.#holders[block]++ === 0) this.#idle.delete(block);
  }

  #letGo(block: number): void {
    if (--this.#holders[block] > 0) return;
    if (this.#hashes[block] === undefined) this.#free.push(block);
    else this.#idle.add(block);
  }

  #takeFree(): number {
    const block = this.#free.pop();
    if (block !== undefined) return block;
    const oldest = this.#idle.values().next().value;
    if (oldest === undefined) throw new Error("All KV blocks are held");
    this.#idle.delete(oldest);
    this.#index.delete(this.#hashes[oldest]!);
    this.#hashes[oldest] = undefined;
    this.states?.forget(oldest);
    return oldest;
  }
}

/** Blocks that so many tokens take. */
export function blocksFor(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}

/** The last token is always computed: its logits are wanted. So are those of every token yet to be scored. */
function reusableTokens(sequence: Sequence): number {
  return isScoring(sequence) ? sequence.scores.length - 1 : sequence.length - 1;
}

function hashOf(sequence: Sequence, position: number): number {
  const { hashes, tokens, salt } = sequence;
  while (hashes.length <= position) {
    const count = hashes.length;
    const parent = count === 0 ? hashOfSalt(salt) : hashes[count - 1];
    hashes.push(hashOfBlock(parent, tokens, count * KV_BLOCK_TOKENS));
  }
  return hashes[position];
}

function hashOfSalt(salt: string): number {
  let hash = 0;
  for (let i = 0; i < salt.length; i++) hash = Math.imul(hash ^ salt.charCodeAt(i), 0x01000193) + 1;
  return hash >>> 0;
}

/** 53 bits, in two lanes of 32 with different multipliers. */
function hashOfBlock(parent: number, tokens: Int32Array, start: number): number {
  let low = parent | 0;
  let high = Math.floor(parent / 2 ** 32) | 0;
  for (let i = start; i < start + KV_BLOCK_TOKENS; i++) {
    low = Math.imul(low ^ tokens[i], 0x9e3779b1);
    low ^= low >>> 15;
    high = Math.imul(high + tokens[i], 0x85ebca6b) ^ low;
    high ^= high >>> 13;
  }
  return (high & 0x1fffff) * 2 ** 32 + (low >>> 0);
}
