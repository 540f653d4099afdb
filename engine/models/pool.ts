import { worded } from "../api/errors.ts";
import { closed, figures, noRoom } from "./pool_errors.ts";
import { DEFAULTS, type PoolOptions } from "./pool_options.ts";
import { findNamed, modelRequired, unknownModel } from "./loaded_models.ts";
import { type OpenedModel, Slot, type Waiter } from "./slot.ts";
import { later, PoolTimers } from "./pool_timers.ts";
import { DEFAULT_TURNS, enough, inLine, leaving, type TurnRules, victimsFor } from "./turns.ts";
import {
  type HeldEngine,
  ModelError,
  ModelRefused,
  type Models,
  type OfferedModel,
  type UseOptions,
} from "./types.ts";

/** Milliseconds between scans for new models, and between checks for free memory. */
const RESCAN_MS = 2000;
const LOOK_MS = 200;

/**
 * Several models in one memory budget. A request loads the model that it names.
 *
 * If memory is short, the least recently used idle model is unloaded. If no model is idle, the models in use
 * take turns: one accepts no new requests, finishes its running ones and is unloaded. Its waiting requests
 * wait for its next turn. Only one model is loaded or unloaded at a time.
 */
export class ModelPool implements Models {
  readonly #options:
    & Required<Omit<PoolOptions, "free" | "turns" | "words">>
    & Pick<PoolOptions, "free" | "words">;
  readonly #turns: TurnRules;
  readonly #slots = new Map<string, Slot>();
  readonly #listeners = new Set<(model: OfferedModel) => void>();
  #scannedAt = -Infinity;
  #isDraining = false;
  #lane: Promise<void> | undefined;
  #changed = Promise.withResolvers<void>();
  readonly #timers: PoolTimers;

  constructor(options: PoolOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.#turns = { ...DEFAULT_TURNS, ...options.turns };
    this.#timers = new PoolTimers(() => this.#slots.values(), () => this.#wake());
    this.#rescan();
  }

  list(): readonly OfferedModel[] {
    this.#rescan();
    return [...this.#slots.values()];
  }

  find(name: string): OfferedModel | undefined {
    return this.#find(name);
  }

  use(name: string | undefined, options: UseOptions = {}): Promise<HeldEngine> {
    return Promise.try(() => {
      const slot = this.#named(name);
      if (this.#isDraining) throw closed();
      options.signal?.throwIfAborted();
      const { priority = "interactive", signal, keepMs = this.#options.idleMs } = options;
      slot.keepMs = keepMs;
      return slot.isOpen ? this.#hold(slot, priority) : this.#wait(slot, priority, signal);
    });
  }

  async load(name: string, options: UseOptions = {}): Promise<void> {
    const slot = this.#named(name);
    slot.failedAt = -Infinity; // an explicit load may retry at once
    (await this.use(name, options)).release();
  }

  async unload(name: string): Promise<void> {
    const slot = this.#named(name);
    if (slot.loading) {
      const reason = new ModelError("model_load_failed", `Model "${slot.id}" was unloaded meanwhile`);
      slot.loading.abort(reason);
      this.#turnAway(slot, reason); // later requests wait for the next load
    }
    slot.failure = undefined;
    if (slot.engine === undefined && !slot.loading) return this.#tell(slot);
    const { promise, resolve } = Promise.withResolvers<void>();
    slot.gone.push(resolve);
    if (slot.engine) slot.isUnloading = true;
    this.#tell(slot);
    this.#wake();
    await promise;
  }

  /** Bytes of memory that a further model may take now. */
  get room(): number {
    return this.#room([...this.#slots.values()]);
  }

  onState(listener: (model: OfferedModel) => void): () => void {
    const own = (model: OfferedModel) => listener(model);
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  async drain(graceMs: number): Promise<void> {
    this.#isDraining = true;
    this.#timers.stop();
    for (const slot of this.#slots.values()) {
      slot.loading?.abort(closed());
      for (const waiter of slot.waiters) waiter.reject(closed());
    }
    this.#wake();
    await this.#lane;
    await Promise.all([...this.#slots.values()].map(({ engine }) => engine?.drain(graceMs)));
  }

  async close(): Promise<void> {
    await this.drain(0);
    await Promise.all([...this.#slots.values()].map((slot) => this.#close(slot)));
  }

  #find(name: string): Slot | undefined {
    const known = (name: string) =>
      this.#slots.get(name) ?? this.#slots.values().find((s) => s.aliases.includes(name));
    const now = () => findNamed(name, known);
    const found = now();
    if (found) return found;
    this.#rescan();
    return now();
  }

  #named(name: string | undefined): Slot {
    if (name === undefined) {
      this.#rescan(); // a request may omit the name only if there is exactly one model
      if (this.#slots.size !== 1) throw modelRequired(this.list());
      return this.#slots.values().next().value!;
    }
    const slot = this.#find(name);
    if (slot === undefined) throw unknownModel(name, this.list());
    return slot;
  }

  /** Makes the next request scan the folder for new models, even shortly after the last scan. */
  rescan(): void {
    this.#scannedAt = -Infinity;
  }

  /** Adds new models, and removes missing ones once they are unused. */
  #rescan(): void {
    const now = performance.now();
    if (now - this.#scannedAt < RESCAN_MS) return;
    this.#scannedAt = now;
    const offers = new Map(this.#options.offers().map((source) => [source.id, source]));
    for (const [id, slot] of this.#slots) {
      if (!offers.has(id) && slot.engine === undefined && !slot.loading && slot.waiters.size === 0) {
        this.#slots.delete(id);
      }
    }
    for (const [id, source] of offers) {
      const slot = this.#slots.get(id);
      if (slot) slot.source = { ...slot.source, aliases: source.aliases };
      else this.#slots.set(id, new Slot(source, this.#options.idleMs));
    }
  }

  #hold(slot: Slot, priority: Waiter["priority"]): HeldEngine {
    return slot.hold(slot.engine!, priority, () => performance.now(), () => {
      this.#timers.watchIdle();
      if (this.#lane) this.#wake();
    });
  }

  #wait(slot: Slot, priority: Waiter["priority"], signal: AbortSignal | undefined): Promise<HeldEngine> {
    const { waiting } = this.#options;
    const refusal = this.#recentFailure(slot);
    if (refusal) throw refusal;
    if (slot.waiters.size >= waiting) {
      throw new ModelError("queue_full", `${waiting} requests wait for model "${slot.id}" already`);
    }
    const { promise, resolve, reject } = Promise.withResolvers<HeldEngine>();
    const leave = () => waiter.reject(signal!.reason);
    const end = () => {
      slot.waiters.delete(waiter);
      signal?.removeEventListener("abort", leave);
      this.#wake();
    };
    const waiter: Waiter = {
      priority,
      since: performance.now(),
      resolve: (held) => (end(), resolve(held)),
      reject: (reason) => (end(), reject(reason)),
    };
    slot.waiters.add(waiter);
    signal?.addEventListener("abort", leave, { once: true });
    this.#wake();
    return promise;
  }

  #recentFailure(slot: Slot): ModelError | undefined {
    const left = slot.failedAt + this.#options.retryMs - performance.now();
    if (slot.engine !== undefined || slot.failure === undefined || left <= 0) return undefined;
    return this.#loadFailed(slot, slot.failure, left);
  }

  /**
   * Returns the client's error, which hides file paths. A model that can never fit gets the same memory
   * figures as one that does not fit now.
   */
  #loadFailed({ id, path }: Slot, cause: Error, retryMs: number): ModelError {
    const message = `Model "${id}" cannot be loaded: ${cause.message.replaceAll(path, `${id}.gguf`)}`;
    const lasting = cause instanceof ModelRefused;
    const more = { retryAfter: Math.ceil(retryMs / 1000), cause, lasting };
    const needed = lasting ? cause.needed : undefined;
    if (needed === undefined) return new ModelError("model_load_failed", message, more);
    const details = figures(needed, this.#room([...this.#slots.values()]), this.#options.budget);
    return new ModelError("no_memory_for_model", message, { ...more, details });
  }

  /** Starts or wakes the work loop, because there may be work. */
  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
    this.#lane ??= this.#work().finally(() => {
      this.#lane = undefined;
      // The loop is not woken for work that arrived after its last check, so it checks again.
      const slots = [...this.#slots.values()];
      if (!this.#isDraining && (inLine(slots).length > 0 || leaving(slots).length > 0)) this.#wake();
    });
  }

  /** Loads and unloads models until there is nothing to do. */
  async #work(): Promise<void> {
    await Promise.resolve(); // lets the caller set `#lane` first
    while (!this.#isDraining) {
      const changed = this.#changed.promise;
      const action = await this.#next();
      if (action === "none") return;
      if (action === "wait") await this.#lookLater(changed);
      else await action();
    }
  }

  /**
   * Waits for a change or some time. If the process or machine was suspended, that time does not count as
   * waiting for memory.
   */
  async #lookLater(changed: Promise<void>): Promise<void> {
    const start = performance.now();
    await later(changed, LOOK_MS);
    const still = performance.now() - start - LOOK_MS;
    if (still < LOOK_MS) return;
    for (const { waiters } of this.#slots.values()) for (const waiter of waiters) waiter.since += still;
  }

  async #next(): Promise<"none" | "wait" | (() => Promise<void>)> {
    const slots = [...this.#slots.values()];
    const gone = leaving(slots).find(({ isIdle }) => isIdle);
    if (gone) return () => this.#unload(gone);
    const line = inLine(slots);
    const yielding = new Set<Slot>();
    let action: (() => Promise<void>) | undefined;
    for (const slot of line) {
      const found = await this.#makeRoom(slot, slots, yielding);
      if (typeof found === "function") {
        action = found;
        break;
      }
      if (slot.isUrgent) break; // an interactive request's memory must not go to a later model
    }
    for (const slot of slots) this.#yield(slot, yielding.has(slot));
    return action ?? (line.length > 0 || slots.some(({ isUnloading }) => isUnloading) ? "wait" : "none");
  }

  /**
   * Returns the next action to make room for the model. Adds models that must be unloaded once idle to
   * `yielding`.
   */
  async #makeRoom(slot: Slot, slots: readonly Slot[], yielding: Set<Slot>) {
    let opened: OpenedModel;
    try {
      opened = await slot.open(this.#options.open, performance.now());
    } catch (error) {
      return () => Promise.resolve(this.#failed(slot, error));
    }
    const room = this.#room(slots);
    const missing = opened.bytes - room;
    if (missing <= 0) return () => this.#load(slot, opened);
    const taken = slots.reduce((sum, { engine, bytes }) => sum + (engine === undefined ? 0 : bytes), 0);
    if (missing > taken) return () => Promise.resolve(this.#refuse(slot, room, -Infinity));
    const { idle, busy } = victimsFor(slot, slots, performance.now(), this.#turns);
    const [first] = enough(idle, missing) ?? [];
    if (first) return () => this.#unload(first);
    const idleBytes = idle.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const victim of enough(busy, missing - idleBytes) ?? []) yielding.add(victim);
    this.#refuse(slot, room, this.#options.roomMs);
    return undefined;
  }

  /** Returns the bytes that another model may take now. */
  #room(slots: readonly Slot[]): number {
    const taken = slots.reduce((sum, { engine, bytes }) => sum + (engine === undefined ? 0 : bytes), 0);
    return Math.min(this.#options.budget - taken, this.#options.free?.() ?? Infinity);
  }

  #yield(slot: Slot, isYielding: boolean): void {
    if (slot.isYielding === isYielding) return;
    slot.isYielding = isYielding;
    if (slot.isOpen) this.#serve(slot);
    this.#tell(slot);
  }

  async #load(slot: Slot, opened: OpenedModel): Promise<void> {
    slot.loading = new AbortController();
    this.#tell(slot);
    try {
      const engine = await opened.load(slot.loading.signal);
      slot.start(engine, (state) => {
        if (slot.engine !== engine) return;
        if (state === "failed") this.#engineFailed(slot, engine.failure!);
        this.#tell(slot);
      });
      const { aborted } = slot.loading.signal;
      slot.loading = slot.failure = undefined;
      slot.loadedAt = slot.usedAt = performance.now();
      if (this.#isDraining) return;
      slot.isUnloading = aborted; // the load ended before it noticed the abort
      if (!aborted) this.#serve(slot);
    } catch (error) {
      const { aborted } = slot.loading!.signal;
      slot.loading = undefined;
      if (!aborted) this.#failed(slot, error);
      else for (const resolve of slot.gone.splice(0)) resolve();
    }
    this.#timers.watchIdle();
    this.#tell(slot);
  }

  /** Gives the loaded engine to all waiting requests. */
  #serve(slot: Slot): void {
    for (const { priority, resolve } of [...slot.waiters]) resolve(this.#hold(slot, priority));
  }

  #failed(slot: Slot, error: unknown): void {
    slot.failure = error instanceof Error ? error : new Error(String(error));
    slot.failedAt = performance.now();
    this.#options.note(`Cannot load model "${slot.id}": ${worded(error, this.#options.words)}`);
    const refusal = this.#loadFailed(slot, slot.failure, this.#options.retryMs);
    for (const { reject } of [...slot.waiters]) reject(refusal);
    this.#tell(slot);
  }

  #turnAway(slot: Slot, reason: unknown): void {
    for (const { reject } of [...slot.waiters]) reject(reason);
  }

  /** Closes a failed engine as soon as it is unused, so that its next request loads it again. */
  #engineFailed(slot: Slot, failure: Error): void {
    slot.failure = failure;
    slot.failedAt = performance.now();
    slot.isUnloading = true;
    this.#wake();
  }

  /**
   * Rejects requests that have waited too long for memory. Batch requests are rejected only if memory can never
   * suffice.
   */
  #refuse(slot: Slot, room: number, roomMs: number): void {
    const now = performance.now();
    const { bytes, id } = slot;
    for (const { priority, since, reject } of [...slot.waiters]) {
      if (now - since < roomMs || (priority === "batch" && roomMs > 0)) continue;
      reject(noRoom(id, bytes, Math.max(0, room), this.#options.budget));
    }
  }

  async #unload(slot: Slot): Promise<void> {
    if (!slot.isIdle) return; // a request has taken the model since it was chosen
    await this.#close(slot);
    this.#tell(slot);
  }

  async #close(slot: Slot): Promise<void> {
    const { engine } = slot;
    if (engine === undefined) return;
    slot.isClosing = true;
    this.#tell(slot);
    try {
      await engine.close();
    } catch (error) {
      this.#options.note(`Cannot close model "${slot.id}": ${worded(error, this.#options.words)}`);
    }
    slot.engine = undefined;
    slot.isClosing = slot.isUnloading = slot.isYielding = false;
    this.#timers.collectSoon();
    for (const resolve of slot.gone.splice(0)) resolve();
  }

  #tell(slot: Slot): void {
    for (const listener of [...this.#listeners]) listener(slot);
  }
}
