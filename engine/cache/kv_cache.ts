import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import { hashOf } from "./block_hash.ts";
import { NO_BLOCK, PrefixIndex } from "./prefix_index.ts";
import { blocksFor, blocksOfWindow, firstSeen, type KvDemand } from "./kv_blocks.ts";
import type { RecurrentStates } from "./recurrent_state.ts";
import {
  grown,
  type Restore,
  reusableTokens,
  type Sequence,
  type WindowBlocks,
} from "../schedule/sequence.ts";
import type { PrefixStore } from "./prefix_store.ts";

/**
 * Number of blocks per group and running sequence that must stay free when another sequence is admitted. With fewer,
 * new sequences would soon be preempted; with more, fewer sequences would run.
 */
const GROWTH_BLOCKS = 2;
const NO_WINDOWS: KvDemand = { windows: [], maxRows: 1 };

/**
 * The pool of KV blocks. The pool knows which sequences hold each block, and which full blocks later requests can
 * share.
 *
 * A sequence holds blocks for its tokens, prompt and answer so far, and takes another block when the last is full.
 * Layers form groups, and a block holds tokens of one group. In a group with a sliding window, a sequence holds the
 * blocks that the rows of its next step see, and frees earlier ones.
 *
 * Full blocks form chains, which PrefixIndex finds.
 *
 * Blocks without a holder stay in the index and are evicted least recently used first. A sequence that holds a block
 * holds all blocks before it in the chain, and releases them from last to first. So a block never leaves the index
 * before its successors, and a chain is never broken.
 *
 * Chains consist of the first group's blocks, which are kept for all tokens. A block of another group is found as the
 * companion of the first group's block with the same tokens, while it exists. A prefix can be shared up to a point
 * where every group still has the blocks that the next row sees.
 *
 * With prompts on a disk (`stored`), admission also takes blocks for the prefix that only the disk has. These blocks
 * enter the index once they are read.
 */
export class KvCache {
  readonly #total: number;
  readonly #holders: Int32Array; // [blocks]
  readonly #index: PrefixIndex;
  /** For each layer group after the first: the block with the same tokens as an indexed block of the first group. */
  readonly #companions: Int32Array[]; // [groups - 1][blocks]
  /** Inverse of `#companions`: the first group's block with the same tokens. */
  readonly #leaders: Int32Array; // [blocks]
  /** Free blocks: used before, with content that no request needs. */
  readonly #free: number[] = [];
  /** Number of the first block that was never used. It and all later blocks occupy no memory yet. */
  #fresh = 0;
  /** Cached blocks: indexed, but held by no sequence; least recently used first. */
  readonly #idle = new Set<number>();

  /**
   * Creates the pool. `states`: snapshots that belong to blocks, for models with recurrent layers. If more than
   * `cached` blocks are in use, a cached block is evicted before an unused one is taken.
   */
  constructor(
    blocks: number,
    private readonly states?: RecurrentStates,
    private readonly demand: KvDemand = NO_WINDOWS,
    private readonly stored?: PrefixStore,
    private readonly cached = blocks,
  ) {
    this.#total = blocks;
    this.#companions = demand.windows.map(() => new Int32Array(blocks).fill(NO_BLOCK));
    this.#leaders = new Int32Array(blocks).fill(NO_BLOCK);
    this.#holders = new Int32Array(blocks);
    this.#index = new PrefixIndex(blocks);
  }

  get total(): number {
    return this.#total;
  }

  /** Window sizes in tokens of the layer groups after the first. */
  get windows(): readonly number[] {
    return this.demand.windows;
  }

  get hasStates(): boolean {
    return this.states !== undefined;
  }

  /** Returns whether the recurrent state after this block is in memory. */
  hasState(block: number): boolean {
    return this.states?.has(block) ?? false;
  }

  /**
   * Returns the current place of an indexed block's tokens: the block in a layer group, or the slot of the state after
   * them. Undefined if they are evicted or `block` is not indexed under `hash`.
   */
  locate(block: number, hash: number, kind: number | "state"): number | undefined {
    if (this.#index.hashOf(block) !== hash) return undefined;
    if (kind === "state") return this.states?.slotOf(block);
    const place = kind === 0 ? block : this.#companions[kind - 1][block];
    return place === NO_BLOCK ? undefined : place;
  }

  /** Number of blocks that sequences hold. */
  get used(): number {
    return this.#total - this.available;
  }

  /** Number of blocks that no sequence holds. Taking one evicts its cached prefix. */
  get available(): number {
    return this.#free.length + this.#idle.size + this.#total - this.#fresh;
  }

  /**
   * Returns the number of blocks that are lacking to admit the sequence with `spare` blocks left; 0 or less if it fits.
   */
  missing(sequence: Sequence, spare: number): number {
    const known = this.#index.findPrefix(sequence);
    const usable = this.#usable(known).length;
    const end = this.#restorable(sequence, known, usable);
    let held = 0;
    for (const block of this.#sharedBlocks(known.slice(0, end), end)) if (this.#holders[block] > 0) held++;
    const { length } = sequence;
    const needed = blocksFor(length) + this.#mostInWindows(length, length - usable * KV_BLOCK_TOKENS);
    return needed - held + spare - this.available;
  }

  /**
   * Returns the number of further blocks that the sequence will soon need, beyond those it has or gets at admission.
   */
  growth({ length, maxLength, kv: { cached, blockCount, windows } }: Sequence): number {
    const now = blocksFor(length);
    const blocks = Math.min(GROWTH_BLOCKS, blocksFor(maxLength) - now);
    if (this.#companions.length === 0) return blocks;
    const most = (tokens: number) => this.#mostInWindows(tokens, length - cached);
    const held = blockCount === 0
      ? most(length)
      : windows.reduce((sum, { first, end }) => sum + end - first, 0);
    return blocks + Math.max(0, most((now + blocks) * KV_BLOCK_TOKENS) - held);
  }

  /** Returns the number of blocks that the sequence holds. */
  held({ kv: { blockCount, windows } }: Sequence): number {
    return windows.reduce((sum, { first, end }) => sum + end - first, blockCount);
  }

  /**
   * Gives the sequence blocks for all its tokens, and shares existing blocks of its prefix. The blocks must fit
   * (`missing`). Returns the prefix parts to read from the disk first.
   */
  admit(sequence: Sequence): Restore | undefined {
    const { kv } = sequence;
    const known = this.#index.findPrefix(sequence);
    const usable = this.#usable(known).length;
    const end = this.#restorable(sequence, known, usable);
    const shared = known.slice(0, end);
    for (const block of this.#sharedBlocks(shared, end)) this.#hold(block);
    kv.blocks = new Int32Array(blocksFor(sequence.length));
    kv.blocks.set(shared);
    kv.blockCount = shared.length;
    kv.indexed = shared.length;
    kv.cached = end * KV_BLOCK_TOKENS;
    kv.windows = this.demand.windows.map((window, group): WindowBlocks => {
      const first = firstSeen(window, kv.cached);
      const blocks = new Int32Array(blocksFor(sequence.length));
      for (let i = first; i < shared.length; i++) {
        const companion = this.#companions[group][shared[i]];
        blocks[i] = companion === NO_BLOCK ? this.#take() : companion;
      }
      return { blocks, first, end: Math.max(first, shared.length) };
    });
    this.states?.start(sequence, shared.length === end ? shared : [], known.length);
    if (!this.extend(sequence, sequence.length)) {
      throw new Error("The admitted sequence does not fit into the KV cache");
    }
    if (sequence.admission.at === undefined) this.stored?.reused(sequence, Math.min(usable, end));
    return end > usable ? this.#restoreOf(sequence, end, usable) : undefined;
  }

  /**
   * Returns the number of leading blocks, in memory or on disk, after which the sequence can continue; `usable` if the
   * disk adds none.
   */
  #restorable(sequence: Sequence, known: readonly number[], usable: number): number {
    const { stored, states, demand: { windows } } = this;
    if (!stored) return usable;
    const limit = Math.floor(reusableTokens(sequence) / KV_BLOCK_TOKENS);
    let end = known.length;
    while (end < limit && stored.has(sequence, end, 0)) end++;
    const isThere = (position: number, group: number) =>
      (position < known.length && this.#companions[group][known[position]] !== NO_BLOCK) ||
      stored.has(sequence, position, group + 1);
    for (; end > usable; end--) {
      const state = !states || (end <= known.length && states.has(known[end - 1])) ||
        stored.has(sequence, end - 1, "state");
      const seen = (window: number, group: number) => {
        for (let i = firstSeen(window, end * KV_BLOCK_TOKENS); i < end; i++) {
          if (!isThere(i, group)) return false;
        }
        return true;
      };
      if (state && windows.every(seen)) return end;
    }
    return usable;
  }

  /** Returns the blocks of an admitted sequence whose content must be read from the disk. */
  #restoreOf(sequence: Sequence, end: number, usable: number): Restore {
    const { blocks, indexed, windows } = sequence.kv;
    const parts: { position: number; kind: number; place: number }[] = [];
    for (let position = 0; position < end; position++) {
      if (position >= indexed) parts.push({ position, kind: 0, place: blocks[position] });
      for (const [group, window] of windows.entries()) {
        if (position < window.first) continue;
        const companion = position < indexed ? this.#companions[group][blocks[position]] : NO_BLOCK;
        if (companion === NO_BLOCK) {
          parts.push({ position, kind: group + 1, place: window.blocks[position] });
        }
      }
    }
    const slot = this.states && sequence.state!.source === undefined
      ? this.states.reserve(sequence)
      : undefined;
    return { end, tokens: (end - usable) * KV_BLOCK_TOKENS, parts, slot };
  }

  /** Indexes the blocks before `end` of a sequence that waits for its prefix, so that other sequences find them. */
  restored(sequence: Sequence, end: number): void {
    this.#indexFull(sequence, end * KV_BLOCK_TOKENS);
    const known = Math.min(end, sequence.kv.indexed);
    for (let position = 0; position < known; position++) this.#shareWindows(sequence, position);
  }

  /**
   * Takes blocks until the sequence has enough for `tokens`. If there are too few, returns false and changes nothing.
   */
  extend(sequence: Sequence, tokens: number): boolean {
    const { kv } = sequence;
    if (this.lacking(sequence, tokens) > this.available) return false;
    const [wanted, most] = [blocksFor(tokens), blocksFor(sequence.maxLength)];
    while (kv.blockCount < wanted) {
      const { blocks, blockCount } = kv;
      if (blockCount === blocks.length) kv.blocks = grown(blocks, most);
      kv.blocks[kv.blockCount++] = this.#take();
    }
    const end = this.#windowEnd(sequence, tokens);
    for (const window of kv.windows) {
      while (window.end < end) {
        if (window.end === window.blocks.length) window.blocks = grown(window.blocks, most);
        window.blocks[window.end++] = this.#take();
      }
    }
    return true;
  }

  /** Returns the number of blocks that the sequence lacks for `tokens`. */
  lacking(sequence: Sequence, tokens: number): number {
    const { kv } = sequence;
    const lacking = Math.max(0, blocksFor(tokens) - kv.blockCount);
    if (kv.windows.length === 0) return lacking;
    const end = this.#windowEnd(sequence, tokens);
    return kv.windows.reduce((sum, window) => sum + Math.max(0, end - window.end), lacking);
  }

  /**
   * Returns the block up to which windowed groups need blocks for `tokens` tokens. A long prompt needs them only for
   * the rows of its next step.
   */
  #windowEnd({ length, kv: { cached } }: Sequence, tokens: number): number {
    return blocksFor(Math.min(tokens, cached + this.demand.maxRows + tokens - length));
  }

  /**
   * Returns the maximum blocks that `tokens` tokens take in groups with windows, with `pending` tokens yet to compute.
   */
  #mostInWindows(tokens: number, pending: number): number {
    const rows = Math.max(1, Math.min(pending, this.demand.maxRows));
    return this.demand.windows.reduce((sum, window) => sum + blocksOfWindow(window, tokens, rows), 0);
  }

  /**
   * Updates the cache after the sequence's next `tokens` tokens were computed: indexes blocks that became full and
   * frees blocks that left their window.
   */
  advance(sequence: Sequence, tokens: number): void {
    const { kv } = sequence;
    kv.cached += tokens;
    this.#indexFull(sequence);
    for (const [group, window] of kv.windows.entries()) {
      const first = Math.min(window.end, firstSeen(this.demand.windows[group], kv.cached));
      while (window.first < first) this.#letGo(window.blocks[window.first++]);
    }
  }

  #indexFull(sequence: Sequence, cached = sequence.kv.cached): void {
    const { kv } = sequence;
    while ((kv.indexed + 1) * KV_BLOCK_TOKENS <= cached) {
      const position = kv.indexed;
      const block = kv.blocks[position];
      const parent = position === 0 ? NO_BLOCK : kv.blocks[position - 1];
      const known = this.#index.find(sequence, position, parent);
      if (known !== NO_BLOCK) {
        // Another sequence indexed the same tokens first: hold its block, so each chain is in the pool once.
        this.#hold(known);
        this.#letGo(block);
        kv.blocks[position] = known;
      } else if (this.#index.has(hashOf(sequence, position))) {
        return; // Different tokens have the same hash, so this chain cannot be indexed.
      } else {
        this.#index.insert(sequence, position, block, parent);
        this.stored?.computed(sequence, position);
      }
      this.#shareWindows(sequence, position);
      kv.indexed++;
    }
  }

  /** Makes the other groups' blocks companions of an indexed block, or switches to its existing companions. */
  #shareWindows({ kv: { blocks, windows } }: Sequence, position: number): void {
    const leader = blocks[position];
    for (const [group, window] of windows.entries()) {
      if (position < window.first || position >= window.end) continue;
      const known = this.#companions[group][leader];
      const block = window.blocks[position];
      if (known === NO_BLOCK) {
        this.#companions[group][leader] = block;
        this.#leaders[block] = leader;
      } else {
        this.#hold(known);
        this.#letGo(block);
        window.blocks[position] = known;
      }
    }
  }

  /** Releases all blocks of the sequence. Indexed blocks stay findable until they are evicted. */
  release(sequence: Sequence): void {
    const { kv } = sequence;
    this.states?.release(sequence);
    for (let i = kv.blockCount - 1; i >= 0; i--) {
      for (const { blocks, first, end } of kv.windows) {
        if (i >= first && i < end) this.#letGo(blocks[i]);
      }
      this.#letGo(kv.blocks[i]);
    }
    kv.blocks = new Int32Array(0);
    kv.windows = [];
    kv.blockCount = 0;
    kv.indexed = 0;
    kv.cached = 0;
    this.stored?.released(sequence);
  }

  /** Returns whether `running` is computing a block that `waiting` could share afterwards. */
  isComputing(running: Sequence, waiting: Sequence): boolean {
    if (this.states) return this.#willSave(running, waiting, this.states);
    const position = running.disk.restoring
      ? running.kv.indexed
      : Math.floor(running.kv.cached / KV_BLOCK_TOKENS);
    const end = (position + 1) * KV_BLOCK_TOKENS;
    if (end > running.length || end > reusableTokens(waiting)) return false;
    const hash = hashOf(running, position);
    return hash === hashOf(waiting, position) && !this.#index.has(hash);
  }

  /**
   * For recurrent models: returns whether `running` has yet to reach the block edge where the two sequences diverge.
   * Marks that edge for a snapshot.
   */
  #willSave(running: Sequence, waiting: Sequence, states: RecurrentStates): boolean {
    const limit = Math.floor(Math.min(running.length, reusableTokens(waiting)) / KV_BLOCK_TOKENS);
    let common = 0;
    while (common < limit && hashOf(running, common) === hashOf(waiting, common)) common++;
    const edge = common * KV_BLOCK_TOKENS;
    const { restoring } = running.disk;
    if (restoring && common >= restoring.end) {
      return restoring.end > this.#usable(this.#index.findPrefix(waiting)).length;
    }
    if (edge <= running.kv.cached || common <= this.#usable(this.#index.findPrefix(waiting)).length) {
      return false;
    }
    states.mark(running, edge);
    return true;
  }

  /**
   * Returns the leading blocks of a chain after which a sequence can continue, because their windows and state are in
   * memory.
   */
  #usable(known: number[]): number[] {
    const { states, demand: { windows } } = this;
    if (!states && windows.length === 0) return known;
    const since = windows.map(() => 0); // per group: the position from which no companion is missing
    let usable = 0;
    for (let end = 1; end <= known.length; end++) {
      const block = known[end - 1];
      for (let group = 0; group < windows.length; group++) {
        if (this.#companions[group][block] === NO_BLOCK) since[group] = end;
      }
      const seen = windows.every((window, group) => since[group] <= firstSeen(window, end * KV_BLOCK_TOKENS));
      if (seen && (!states || states.has(block))) usable = end;
    }
    return known.slice(0, usable);
  }

  /** Yields the indexed blocks of all groups that a sequence shares when it continues after `end` blocks. */
  *#sharedBlocks(shared: readonly number[], end = shared.length): Iterable<number> {
    yield* shared;
    for (const [group, window] of this.demand.windows.entries()) {
      const first = firstSeen(window, end * KV_BLOCK_TOKENS);
      for (let i = first; i < shared.length; i++) {
        const companion = this.#companions[group][shared[i]];
        if (companion !== NO_BLOCK) yield companion;
      }
    }
  }

  #hold(block: number): void {
    if (this.#holders[block]++ === 0) this.#idle.delete(block);
  }

  #letGo(block: number): void {
    if (--this.#holders[block] > 0) return;
    if (this.#index.hashOf(block) === undefined && this.#leaders[block] === NO_BLOCK) this.#free.push(block);
    else this.#idle.add(block);
  }

  /** Takes a free block and marks it as held. */
  #take(): number {
    const block = this.#free.pop() ?? (this.#takesFresh() ? this.#fresh++ : this.#giveUpOldest());
    this.#holders[block] = 1;
    return block;
  }

  #takesFresh(): boolean {
    return this.#fresh < (this.#idle.size > 0 ? this.cached : this.#total);
  }

  #giveUpOldest(): number {
    const oldest = this.#idle.values().next().value;
    if (oldest === undefined) throw new Error("All KV blocks are held");
    this.#idle.delete(oldest);
    if (this.#leaders[oldest] === NO_BLOCK) this.#forget(oldest);
    else {
      const companions = this.#companions.find((of) => of[this.#leaders[oldest]] === oldest)!;
      companions[this.#leaders[oldest]] = NO_BLOCK;
      this.#leaders[oldest] = NO_BLOCK;
    }
    return oldest;
  }

  /** Removes a block from the index. Its companions have no holder: a holder would hold this block too. */
  #forget(block: number): void {
    this.#index.remove(block);
    this.states?.forget(block);
    for (const companions of this.#companions) {
      const companion = companions[block];
      if (companion === NO_BLOCK) continue;
      companions[block] = NO_BLOCK;
      this.#leaders[companion] = NO_BLOCK;
      this.#idle.delete(companion);
      this.#free.push(companion);
    }
  }
}
