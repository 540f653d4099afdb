import { delay } from "@std/async/delay.js";
import { type Backend, type CacheBlock, type CopiesCache, KV_BLOCK_TOKENS } from "../backend/backend.ts";
import { firstSeen } from "./kv_blocks.ts";
import type { KvCache } from "./kv_cache.ts";
import type { PartKind, PromptDisk } from "./disk/types.ts";
import { inTime, MOST_COPIED, type Piece, piecesOf } from "./restore_blocks.ts";
import type { Restore, Sequence } from "../schedule/sequence.ts";
import type { DiskStats } from "../api/engine.ts";

/** Maximum number of parts that wait to be copied out; further parts are not stored. */
const MOST_OFFERED = 1 << 16;
/** Maximum number of remembered blocks that were computed once and are not stored yet. */
const MOST_SEEN = 1 << 17;
/**
 * Limit of tokens copied out after a step, per row of the step. A small step may copy LEAST_COPIED_TOKENS
 * tokens. The limit keeps copying a small share of the compute time.
 */
const COPIED_TOKENS_PER_ROW = 2;
const LEAST_COPIED_TOKENS = 8;
/** Milliseconds that a closing engine may spend to write the remaining parts. */
const FLUSH_MS = 10_000;
const ROOM_POLL_MS = 10;

/** A part of the KV cache to write to disk while it is still in memory. */
interface Offer {
  /** The first group's block with the same tokens, and its hash in the prefix index. */
  readonly leader: number;
  readonly hash: number;
  readonly kind: PartKind;
  /** Called with true if the part was written to disk, otherwise with false. */
  readonly settle?: (there: boolean) => void;
}

/** A piece of a prefix that was read from the disk. */
interface Arrival extends Piece {
  readonly sequence: Sequence;
  readonly restore: Restore;
  /** The piece's bytes; undefined if it could not be read. */
  readonly bytes: readonly Uint8Array[] | undefined;
  readonly taken: () => void;
}

/** Receives the outcome of reads for the scheduler. */
export interface Restorer {
  /** Reports that the sequence's prefix is in memory, so that the sequence can run. */
  restored(sequence: Sequence): void;
  /** Reports that the prefix could not be read, so that the missing part must be computed. */
  giveBack(sequence: Sequence): void;
}

/**
 * Stores an engine's prompts on a disk, and reads prefixes from which a sequence can continue. Texts of embedding requests
 * are not stored, because they rarely repeat. `exchange` copies bytes only between steps.
 */
export class StoredPrefixes {
  readonly #disk: PromptDisk;
  readonly #copies: CopiesCache;
  readonly #wake: () => void;
  readonly #unlisten: () => void;
  #cache!: KvCache;
  readonly #bytesPerToken: number;
  /** Parts to write to disk by name, in writing order. */
  readonly #offers = new Map<string, Offer>();
  /** Parts whose storage a request waits for. Such parts are copied at once, because states may be evicted soon. */
  readonly #urgent = new Map<string, Offer>();
  readonly #urgentStates = new Map<string, Offer>();
  /** Parts that were copied from the KV cache and are being written to disk. */
  readonly #writing = new Map<string, Promise<boolean>>();
  readonly #arrivals: Arrival[] = [];
  /** Hashes of blocks that were computed once. */
  readonly #seen = new Set<number>();
  /** Bytes that may be copied out of the KV cache while sequences run. */
  #credit = 0;
  readonly #totals = { hits: 0, tokens: 0, readBytes: 0, writes: 0, writtenBytes: 0 };

  /** Creates the store of an engine's prompts. `wake` makes the engine call `exchange`. */
  constructor(disk: PromptDisk, backend: Backend, wake: () => void) {
    const { copies } = backend.abilities;
    if (!copies) throw new Error("This backend's KV cache cannot be copied");
    this.#disk = disk;
    this.#copies = copies;
    this.#wake = wake;
    this.#unlisten = disk.store.onRoom(() => this.pending && wake());
    const tokenBytes = disk.groupBytes.reduce((sum, bytes) => sum + bytes, 0) / KV_BLOCK_TOKENS;
    this.#bytesPerToken = Math.max(4096, tokenBytes);
  }

  /** Sets the KV cache whose blocks are stored. */
  attach(cache: KvCache): void {
    this.#cache = cache;
  }

  stats(): DiskStats {
    const { bytes, limit } = this.#disk.store;
    return { ...this.#totals, bytes, limit };
  }

  /** Whether any parts wait to be copied into or out of the KV cache. */
  get pending(): boolean {
    if (this.#arrivals.length + this.#urgentStates.size > 0) return true;
    return this.#offers.size + this.#urgent.size > 0 && this.#disk.store.room > 0;
  }

  /** Whether a part of the sequence's prefix is on the disk. */
  has(sequence: Sequence, position: number, kind: PartKind): boolean {
    return !sequence.disk.skips && !sequence.pooled &&
      this.#disk.store.has(this.#nameOf(sequence, position, kind));
  }

  /** Call when a block enters the prefix index. */
  computed(sequence: Sequence, position: number): void {
    if (sequence.pooled) return;
    if (this.#disk.eager || this.#isSecond(sequence.kv.hashes[position])) this.#offer(sequence, position, 0);
  }

  /** Call when a sequence reuses a prefix of `end` blocks from memory. */
  reused(sequence: Sequence, end: number): void {
    if (end === 0 || sequence.pooled) return;
    const names: string[] = [];
    for (let position = 0; position < end; position++) names.push(this.#offer(sequence, position, 0));
    for (const { position, kind } of this.#edgeParts(sequence, end)) {
      names.push(this.#offer(sequence, position, kind));
    }
    this.#disk.store.use(names);
  }

  /** Call when the sequence no longer holds blocks. Its pending reads and writes are then ignored. */
  released({ disk }: Sequence): void {
    disk.restoring = undefined;
    disk.storing = undefined;
  }

  /** Call when a later sequence may continue after the first `end` blocks of this one. */
  edge(sequence: Sequence, end: number): void {
    if (!this.#disk.eager || sequence.pooled || end === 0 || end > sequence.kv.indexed) return;
    for (const { position, kind } of this.#edgeParts(sequence, end)) this.#offer(sequence, position, kind);
  }

  /** Call after a step of `rows` rows was computed, to update the copying limit. */
  stepped(rows: number): void {
    const tokens = Math.max(LEAST_COPIED_TOKENS, COPIED_TOKENS_PER_ROW * rows);
    this.#credit = Math.min(this.#credit + tokens * this.#bytesPerToken, 4 * MOST_COPIED);
  }

  /** Starts to read from disk the parts that the sequence waits for. */
  fetch(sequence: Sequence, restore: Restore): void {
    sequence.disk.restoring = restore;
    this.#fetch(sequence, restore);
  }

  /** Call between two steps: copies parts that were read into the KV cache, and parts to be written out of it. */
  async exchange(restorer: Restorer, idle: boolean): Promise<void> {
    for (let copied = 0; copied < MOST_COPIED && this.#arrivals.length > 0;) {
      const arrival = this.#arrivals.shift()!;
      copied += arrival.parts.reduce((sum, { kind }) => sum + this.#bytesOf(kind), 0);
      await this.#takeIn(arrival, restorer);
    }
    await this.#copyOut(idle);
  }

  /**
   * Writes the whole prompt of a sequence, which keeps its blocks meanwhile. Sets `disk.stored` and resolves to true
   * when it is durable; false if the sequence ended or was preempted. Throws an Error with the reason of a failure.
   */
  async storePrompt(sequence: Sequence): Promise<boolean> {
    const { disk, progress } = sequence;
    const attempt = disk.storing = {};
    const isCurrent = () => disk.storing === attempt && !progress.done;
    try {
      const tokens = await this.#writePrompt(sequence);
      if (isCurrent()) disk.stored = { tokens, cache: this.#disk.names.id };
    } catch (error) {
      if (isCurrent()) throw error;
    }
    return isCurrent();
  }

  /** Returns the number of tokens that a prompt with the same prefix can reuse. */
  async #writePrompt(sequence: Sequence): Promise<number> {
    const { store } = this.#disk;
    const { parts, end } = this.#partsToKeep(sequence);
    if (end === 0) return 0;
    const bytes = parts.reduce((sum, { kind }) => sum + this.#bytesOf(kind), 0);
    if (bytes > store.limit) throw new Error(`it takes ${bytes} bytes and the cache holds ${store.limit}`);
    const names: string[] = [];
    const writes = parts.map(({ position, kind }) => {
      const name = this.#nameOf(sequence, position, kind);
      names.push(name);
      const written = store.has(name) || this.#writing.get(name);
      if (written) return written;
      this.#offers.delete(name);
      const urgent = kind === "state" ? this.#urgentStates : this.#urgent;
      return new Promise<boolean>((resolve) => {
        const [leader, hash] = [sequence.kv.blocks[position], sequence.kv.hashes[position]];
        const earlier = urgent.get(name)?.settle; // prompts that are stored at the same time share a prefix
        const settle = (there: boolean) => {
          earlier?.(there);
          resolve(there);
        };
        urgent.set(name, { leader, hash, kind, settle });
      });
    });
    this.#wake();
    const written = await Promise.all(writes);
    if (!written.every((there) => there)) {
      throw new Error("the disk is full or failing, or the cache too small");
    }
    store.use(names);
    if (!await store.sync(names)) throw new Error("the disk is failing, or the cache too small");
    return end * KV_BLOCK_TOKENS;
  }

  /** Copies out and writes the remaining parts, for a limited time. No step may run any more. */
  async flush(restorer: Restorer): Promise<void> {
    const { store } = this.#disk;
    const end = performance.now() + FLUSH_MS;
    while (this.#offers.size > 0 && performance.now() < end) {
      if (store.room > 0) await this.exchange(restorer, true);
      else await delay(ROOM_POLL_MS);
    }
  }

  async close(): Promise<void> {
    this.drop();
    this.#unlisten();
    await this.#disk.close();
  }

  /** Returns the parts that a sequence needs to continue at a block edge, except the first group's blocks. */
  #edgeParts(sequence: Sequence, end: number): { position: number; kind: PartKind }[] {
    const parts: { position: number; kind: PartKind }[] = [];
    for (const [i, window] of this.#cache.windows.entries()) {
      const first = firstSeen(window, end * KV_BLOCK_TOKENS);
      for (let position = first; position < end; position++) parts.push({ position, kind: i + 1 });
    }
    if (this.#cache.hasState(sequence.kv.blocks[end - 1])) parts.push({ position: end - 1, kind: "state" });
    return parts;
  }

  /** Returns a prompt's parts to store: its full blocks, and the parts for prompts that diverge near its end. */
  #partsToKeep(sequence: Sequence): { parts: { position: number; kind: PartKind }[]; end: number } {
    const { promptLength, kv: { indexed } } = sequence;
    const last = Math.floor((promptLength - 1) / KV_BLOCK_TOKENS);
    const plain = this.#cache.windows.length === 0 && !this.#cache.hasStates;
    const end = Math.min(indexed, plain ? Math.floor(promptLength / KV_BLOCK_TOKENS) : last);
    const parts: { position: number; kind: PartKind }[] = [];
    for (let position = 0; position < end; position++) parts.push({ position, kind: 0 });
    const edges = new Map<string, { position: number; kind: PartKind }>();
    for (const edge of [last - 1, last]) {
      if (edge < 1 || edge > indexed) continue;
      for (const part of this.#edgeParts(sequence, edge)) {
        const { position, kind } = part;
        // A sliding window may already have freed a block that the last edge does not see.
        const held = this.#cache.locate(sequence.kv.blocks[position], sequence.kv.hashes[position], kind);
        if (edge === last || held !== undefined) edges.set(`${position} ${kind}`, part);
      }
    }
    if (this.#cache.hasStates && end > 0) edges.set(`${end - 1} state`, { position: end - 1, kind: "state" });
    return { parts: [...parts, ...edges.values()], end };
  }

  /** Queues a part to be written, unless it is known. Returns its name. */
  #offer(sequence: Sequence, position: number, kind: PartKind): string {
    const { store } = this.#disk;
    const name = this.#nameOf(sequence, position, kind);
    const waiting = [this.#offers, this.#urgent, this.#urgentStates, this.#writing];
    const known = waiting.some((names) => names.has(name)) || store.has(name);
    if (known || this.#offers.size >= MOST_OFFERED || !store.writable) return name;
    const { blocks, hashes } = sequence.kv;
    this.#offers.set(name, { leader: blocks[position], hash: hashes[position], kind });
    return name;
  }

  /** Whether a block was computed before and has since left memory. */
  #isSecond(hash: number): boolean {
    if (this.#seen.delete(hash)) {
      this.#seen.add(hash);
      return true;
    }
    if (this.#seen.size >= MOST_SEEN) this.#seen.delete(this.#seen.values().next().value!);
    this.#seen.add(hash);
    return false;
  }

  async #fetch(sequence: Sequence, restore: Restore): Promise<void> {
    const { store } = this.#disk;
    let before = Promise.resolve();
    for (const piece of piecesOf(restore, (kind) => this.#bytesOf(kind))) {
      const reads = piece.parts.map(({ position, kind }) =>
        store.read(this.#nameOf(sequence, position, kind), this.#bytesOf(kind))
      );
      const read = await inTime(Promise.all(reads));
      if (sequence.disk.restoring !== restore) return;
      const whole = read?.every((bytes) => bytes !== undefined) ? read as Uint8Array[] : undefined;
      await before; // one piece waits while the next one is read
      if (sequence.disk.restoring !== restore) return;
      before = new Promise((taken) => {
        this.#arrivals.push({ sequence, restore, ...piece, bytes: whole, taken });
      });
      this.#wake();
      if (!whole) return;
    }
    const names = Array.from({ length: restore.end }, (_, i) => this.#nameOf(sequence, i, 0));
    store.use([...names, ...restore.parts.map((part) => this.#nameOf(sequence, part.position, part.kind))]);
  }

  async #takeIn(arrival: Arrival, restorer: Restorer): Promise<void> {
    const { sequence, restore, blocks, slots, bytes, end, last, taken } = arrival;
    const stale = () => sequence.disk.restoring !== restore;
    try {
      if (stale()) return;
      if (bytes) {
        await this.#copies.writeCache({ blocks, slots }, bytes);
        if (stale()) return;
        this.#totals.readBytes += bytes.reduce((sum, part) => sum + part.length, 0);
        this.#cache.restored(sequence, end);
        if (!last) return;
      }
      if (bytes && sequence.kv.indexed >= restore.end) {
        this.#totals.hits++;
        this.#totals.tokens += restore.tokens;
        sequence.disk.restoring = undefined;
        restorer.restored(sequence);
      } else {
        sequence.disk.skips = true;
        restorer.giveBack(sequence);
      }
    } finally {
      taken();
    }
  }

  async #copyOut(idle: boolean): Promise<void> {
    const { store } = this.#disk;
    if (!store.writable) return this.drop();
    const blocks: { name: string; place: CacheBlock; offer: Offer }[] = [];
    const slots: { name: string; place: number; offer: Offer }[] = [];
    let total = 0;
    const states = this.#urgentStates;
    for (const offers of [states, this.#urgent, this.#offers]) {
      const free = idle || offers !== this.#offers;
      for (const [name, offer] of offers) {
        const { kind, leader, hash } = offer;
        const bytes = this.#bytesOf(kind);
        if (offers !== states && (store.room <= total || total > MOST_COPIED)) break;
        if (!free && bytes > this.#credit) break;
        offers.delete(name);
        const there = store.has(name);
        const place = there ? undefined : this.#cache.locate(leader, hash, kind);
        if (place === undefined) {
          offer.settle?.(there);
          continue;
        }
        total += bytes;
        if (!free) this.#credit -= bytes;
        if (kind === "state") slots.push({ name, place, offer });
        else blocks.push({ name, place: { group: kind, block: place }, offer });
      }
    }
    if (total === 0) return;
    const parts = { blocks: blocks.map(({ place }) => place), slots: slots.map(({ place }) => place) };
    const bytes = await this.#copies.readCache(parts);
    let at = 0;
    for (const { name, offer } of [...blocks, ...slots]) {
      const part = bytes.subarray(at, at += this.#bytesOf(offer.kind));
      const written = store.write(name, part);
      this.#writing.set(name, written);
      written.then((there) => {
        this.#writing.delete(name);
        if (there) {
          this.#totals.writes++;
          this.#totals.writtenBytes += part.length;
        }
        offer.settle?.(there);
      });
    }
  }

  /** Drops all parts that wait to be written. */
  drop(): void {
    const urgent = [...this.#urgentStates.values(), ...this.#urgent.values()];
    for (const offers of [this.#urgentStates, this.#urgent, this.#offers]) offers.clear();
    for (const { settle } of urgent) settle?.(false);
  }

  #bytesOf(kind: PartKind): number {
    return kind === "state" ? this.#disk.stateBytes : this.#disk.groupBytes[kind];
  }

  #nameOf(sequence: Sequence, position: number, kind: PartKind): string {
    const { names } = this.#disk;
    const { disk: { links }, tokens, prefixKey, images } = sequence;
    while (links.length <= position) {
      const count = links.length;
      const before = count === 0 ? names.root(prefixKey, images !== undefined) : links[count - 1];
      links.push(names.link(before, tokens.subarray(count * KV_BLOCK_TOKENS, (count + 1) * KV_BLOCK_TOKENS)));
    }
    return names.name(links[position], kind);
  }
}
