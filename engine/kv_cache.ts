import { KV_BLOCK_TOKENS } from "./backend/backend.ts";
import { hashOf } from "./block_hash.ts";
import { blocksFor, blocksOfWindow, firstSeen, type KvDemand } from "./kv_blocks.ts";
import type { RecurrentStates } from "./recurrent_state.ts";
import { grown, type Restore, type Sequence, unscored, type WindowBlocks } from "./sequence.ts";
import type { StoredPrefixes } from "./stored_prefixes.ts";

const NO_BLOCK = -1;
/**
 * Blocks of each group that stay free for each running sequence when another is admitted. Without them, those just
 * admitted would soon be preempted again; with more, fewer would run.
 */
const GROWTH_BLOCKS = 2;
const NO_WINDOWS: KvDemand = { windows: [], maxRows: 1 };

/**
 * The pool of KV blocks: who holds which, and which full blocks later requests can share.
 *
 * A sequence holds blocks for the tokens that it has, prompt and answer so far, and takes another when the last is full.
 * Layers are in groups, and a block holds tokens of one group. In a group whose layers see a window, a sequence holds what
 * the rows of its next step see, and gives back the rest as it goes on.
 *
 * Full blocks form chains: a block is found by the hash of its predecessor's hash, the salt and its tokens, and taken
 * only if its predecessor, salt and tokens are really the same. Blocks that nobody holds stay in the index, and are
 * given up least recently used first. Whoever holds a block holds all before it in the chain, and blocks are let go
 * from the last to the first: so a block never leaves the index before its successors, and a chain is never broken.
 *
 * These chains are of the first group's blocks, which are kept for all tokens. Blocks of the other groups are found as
 * companions of the block that holds the same tokens, as long as they are there. A prefix can be shared as far as
 * every group has what the next row sees of it.
 *
 * Where prompts are kept on a disk (`stored`), a sequence is admitted with blocks for what is there beyond memory, too; they
 * are in the index once they have been read.
 */
export class KvCache {
  readonly #total: number;
  readonly #holders: Int32Array; // [blocks]
  readonly #tokens: Int32Array; // [blocks, KV_BLOCK_TOKENS], of indexed blocks
  readonly #parents: Int32Array; // [blocks], of indexed blocks
  readonly #salts: string[]; // [blocks], of indexed blocks
  readonly #hashes: (number | undefined)[]; // [blocks], undefined: not indexed
  readonly #index = new Map<number, number>();
  /** Of each group after the first, by indexed blocks of the first: the block that holds the same tokens. */
  readonly #companions: Int32Array[]; // [groups - 1][blocks]
  /** The other way round: whose companion a block is. */
  readonly #leaders: Int32Array; // [blocks]
  /** Blocks without content worth keeping. */
  readonly #free: number[] = [];
  /** Indexed blocks that nobody holds, least recently used first. */
  readonly #idle = new Set<number>();

  /** `states` go along with the blocks, of models with recurrent layers. */
  constructor(
    blocks: number,
    private readonly states?: RecurrentStates,
    private readonly demand: KvDemand = NO_WINDOWS,
    private readonly stored?: StoredPrefixes,
  ) {
    this.#total = blocks;
    this.#companions = demand.windows.map(() => new Int32Array(blocks).fill(NO_BLOCK));
    this.#leaders = new Int32Array(blocks).fill(NO_BLOCK);
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

  /** Tokens that rows see in the layers of each group but the first. */
  get windows(): readonly number[] {
    return this.demand.windows;
  }

  get hasStates(): boolean {
    return this.states !== undefined;
  }

  /** Whether the recurrent state after this block is in memory. */
  hasState(block: number): boolean {
    return this.states?.has(block) ?? false;
  }

  /**
   * Where the tokens of an indexed block are now: the block of a group of layers, or the slot of the state after them.
   * Undefined where they are gone, or `block` is not in the index under that hash.
   */
  locate(block: number, hash: number, kind: number | "state"): number | undefined {
    if (this.#hashes[block] !== hash) return undefined;
    if (kind === "state") return this.states?.slotOf(block);
    const place = kind === 0 ? block : this.#companions[kind - 1][block];
    return place === NO_BLOCK ? undefined : place;
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
    const shared = this.#usable(this.#findPrefix(sequence));
    let held = 0;
    for (const block of this.#sharedBlocks(shared)) if (this.#holders[block] > 0) held++;
    const { length } = sequence;
    const needed = blocksFor(length) + this.#mostInWindows(length, length - shared.length * KV_BLOCK_TOKENS);
    return needed - held + spare - this.available;
  }

  /** Blocks that the sequence, which runs or waits, will soon want besides those that it has, or would have at first. */
  growth({ length, maxLength, cached, blockCount, windows }: Sequence): number {
    const now = blocksFor(length);
    const blocks = Math.min(GROWTH_BLOCKS, blocksFor(maxLength) - now);
    if (this.#companions.length === 0) return blocks;
    const most = (tokens: number) => this.#mostInWindows(tokens, length - cached);
    const held = blockCount === 0
      ? most(length)
      : windows.reduce((sum, { first, end }) => sum + end - first, 0);
    return blocks + Math.max(0, most((now + blocks) * KV_BLOCK_TOKENS) - held);
  }

  /** Blocks that the sequence holds. */
  held({ blockCount, windows }: Sequence): number {
    return windows.reduce((sum, { first, end }) => sum + end - first, blockCount);
  }

  /**
   * Gives the sequence blocks for all its tokens, those of its prefix that are there already included. They must fit. What it
   * has to wait for is returned: parts of its prefix that are on a disk.
   */
  admit(sequence: Sequence): Restore | undefined {
    const known = this.#findPrefix(sequence);
    const usable = this.#usable(known).length;
    const end = this.#restorable(sequence, known, usable);
    const shared = known.slice(0, end);
    for (const block of this.#sharedBlocks(shared, end)) this.#hold(block);
    sequence.blocks = new Int32Array(blocksFor(sequence.length));
    sequence.blocks.set(shared);
    sequence.blockCount = shared.length;
    sequence.indexed = shared.length;
    sequence.cached = end * KV_BLOCK_TOKENS;
    sequence.windows = this.demand.windows.map((window, group): WindowBlocks => {
      const first = firstSeen(window, sequence.cached);
      const blocks = new Int32Array(blocksFor(sequence.length));
      for (let i = first; i < shared.length; i++) {
        const companion = this.#companions[group][shared[i]];
        blocks[i] = companion === NO_BLOCK ? this.#take() : companion;
      }
      return { blocks, first, end: Math.max(first, shared.length) };
    });
    this.states?.start(sequence, shared.length === end ? shared : [], known.length);
    if (!this.extend(sequence, sequence.length)) throw new Error("A sequence was admitted that does not fit");
    if (sequence.admittedAt === undefined) this.stored?.reused(sequence, Math.min(usable, end));
    return end > usable ? this.#restoreOf(sequence, end, usable) : undefined;
  }

  /** Blocks that the sequence can go on after with what is on the disk; `usable` where that is no more. */
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

  /** What an admitted sequence has blocks for, but no content yet. */
  #restoreOf(sequence: Sequence, end: number, usable: number): Restore {
    const { blocks, indexed, windows } = sequence;
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

  /** The blocks before `end` of a sequence that waits for its prefix are there: others find them. */
  restored(sequence: Sequence, end: number): void {
    this.#indexFull(sequence, end * KV_BLOCK_TOKENS);
    const known = Math.min(end, sequence.indexed);
    for (let position = 0; position < known; position++) this.#shareWindows(sequence, position);
  }

  /** Takes blocks until the sequence has room for `tokens`. False, and nothing done, when there are not enough. */
  extend(sequence: Sequence, tokens: number): boolean {
    if (this.lacking(sequence, tokens) > this.available) return false;
    const [wanted, most] = [blocksFor(tokens), blocksFor(sequence.maxLength)];
    while (sequence.blockCount < wanted) {
      const { blocks, blockCount } = sequence;
      if (blockCount === blocks.length) sequence.blocks = grown(blocks, most);
      sequence.blocks[sequence.blockCount++] = this.#take();
    }
    const end = this.#windowEnd(sequence, tokens);
    for (const window of sequence.windows) {
      while (window.end < end) {
        if (window.end === window.blocks.length) window.blocks = grown(window.blocks, most);
        window.blocks[window.end++] = this.#take();
      }
    }
    return true;
  }

  /** How many blocks the sequence lacks to have room for `tokens`. */
  lacking(sequence: Sequence, tokens: number): number {
    const lacking = Math.max(0, blocksFor(tokens) - sequence.blockCount);
    if (sequence.windows.length === 0) return lacking;
    const end = this.#windowEnd(sequence, tokens);
    return sequence.windows.reduce((sum, window) => sum + Math.max(0, end - window.end), lacking);
  }

  /** Where windows end so that a sequence has room for `tokens`: of a long prompt for the rows of its next step. */
  #windowEnd({ length, cached }: Sequence, tokens: number): number {
    return blocksFor(Math.min(tokens, cached + this.demand.maxRows + tokens - length));
  }

  /** Blocks of the groups with windows that so many tokens take at most, `pending` of which are yet to be computed. */
  #mostInWindows(tokens: number, pending: number): number {
    const rows = Math.max(1, Math.min(pending, this.demand.maxRows));
    return this.demand.windows.reduce((sum, window) => sum + blocksOfWindow(window, tokens, rows), 0);
  }

  /** `cached` has moved: makes the blocks that have become full findable for others, and gives back those out of sight. */
  share(sequence: Sequence): void {
    this.#indexFull(sequence);
    for (const [group, window] of sequence.windows.entries()) {
      const first = Math.min(window.end, firstSeen(this.demand.windows[group], sequence.cached));
      while (window.first < first) this.#letGo(window.blocks[window.first++]);
    }
  }

  #indexFull(sequence: Sequence, cached = sequence.cached): void {
    while ((sequence.indexed + 1) * KV_BLOCK_TOKENS <= cached) {
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
        this.stored?.computed(sequence, position);
      }
      this.#shareWindows(sequence, position);
      sequence.indexed++;
    }
  }

  /** Makes the other groups' blocks companions of an indexed block, or takes those that are. */
  #shareWindows({ blocks, windows }: Sequence, position: number): void {
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

  /** Gives back all that the sequence holds; what is indexed stays findable while there is room. */
  release(sequence: Sequence): void {
    this.states?.release(sequence);
    for (let i = sequence.blockCount - 1; i >= 0; i--) {
      for (const { blocks, first, end } of sequence.windows) {
        if (i >= first && i < end) this.#letGo(blocks[i]);
      }
      this.#letGo(sequence.blocks[i]);
    }
    sequence.blocks = new Int32Array(0);
    sequence.windows = [];
    sequence.blockCount = 0;
    sequence.indexed = 0;
    sequence.cached = 0;
    sequence.restoring = undefined;
    sequence.keeping = undefined;
  }

  /** Whether `running` computes what `waiting` could share once it is there. */
  isComputing(running: Sequence, waiting: Sequence): boolean {
    if (this.states) return this.#willSave(running, waiting, this.states);
    const position = running.restoring ? running.indexed : Math.floor(running.cached / KV_BLOCK_TOKENS);
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
    const { restoring } = running;
    if (restoring && common >= restoring.end) {
      return restoring.end > this.#usable(this.#findPrefix(waiting)).length;
    }
    if (edge <= running.cached || common <= this.#usable(this.#findPrefix(waiting)).length) return false;
    states.mark(running, edge);
    return true;
  }

  /** Those of a chain's leading blocks that a sequence can continue from: all windows and the state before it are there. */
  #usable(known: number[]): number[] {
    const { states, demand: { windows } } = this;
    if (!states && windows.length === 0) return known;
    const since = windows.map(() => 0); // of each group, from where on no companion is missing
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

  /** Those of a sequence's blocks, of all groups, that are in the index, where it continues after `end` blocks. */
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
    if (this.#hashes[block] === undefined && this.#leaders[block] === NO_BLOCK) this.#free.push(block);
    else this.#idle.add(block);
  }

  /** A block that is held from now on. */
  #take(): number {
    const block = this.#free.pop() ?? this.#giveUpOldest();
    this.#holders[block] = 1;
    return block;
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

  /** Takes a block out of the index. Nobody holds its companions: they would hold it too. */
  #forget(block: number): void {
    this.#index.delete(this.#hashes[block]!);
    this.#hashes[block] = undefined;
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

/** The last token is always computed: its logits are wanted. So are those of every token yet to be scored. */
function reusableTokens(sequence: Sequence): number {
  if (sequence.pooled?.whole) return 0;
  return (unscored(sequence)?.first ?? sequence.length) - 1;
}
