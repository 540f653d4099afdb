import type { Engine, EngineState } from "../api/engine.ts";
import type { HeldEngine, ModelState, OfferedModel, UseOptions } from "./types.ts";

/** A model file and its names in requests. */
export interface ModelSource {
  readonly id: string;
  readonly aliases: readonly string[];
  readonly path: string;
  /** Unix seconds of the file's last change. */
  readonly created: number;
}

/** A model with a valid header. */
export interface OpenedModel {
  /** Bytes of memory that the model needs with all caches full. */
  readonly bytes: number;
  load(signal: AbortSignal): Promise<Engine>;
}

/** Milliseconds for which a model's header stays valid after reading it. */
const HEADER_MS = 10_000;

type Priority = NonNullable<UseOptions["priority"]>;

/** A request that waits for the model. */
export interface Waiter {
  readonly priority: Priority;
  /** Start of the request's wait, in milliseconds. */
  since: number;
  readonly resolve: (held: HeldEngine) => void;
  readonly reject: (reason: unknown) => void;
}

/** A pool's state of one model: its engine if loaded, its users and the requests that wait for it. */
export class Slot implements OfferedModel {
  engine: Engine | undefined;
  /** Bytes of the loaded engine, or by the last header that was read. */
  bytes = 0;
  loading: AbortController | undefined;
  /** Whether the model accepts no new requests and closes when the running ones end. */
  isUnloading = false;
  /** Whether the model unloads because another model waits for its memory. */
  isYielding = false;
  isClosing = false;
  failure: Error | undefined;
  failedAt = -Infinity;
  loadedAt = -Infinity;
  /** Time when the last use began or ended. */
  usedAt = -Infinity;
  interactiveAt = -Infinity;
  readonly holds = { interactive: 0, batch: 0 };
  readonly waiters = new Set<Waiter>();
  /** Callbacks for when the model is no longer loaded. */
  readonly gone: (() => void)[] = [];

  #opened: { readonly model: Promise<OpenedModel>; readonly at: number } | undefined;

  /**
   * `keepMs`: milliseconds without requests after which the model is unloaded, set by the last request or the server.
   */
  constructor(public source: ModelSource, public keepMs = Infinity) {}

  /**
   * Returns the model's header. While the model waits for memory, the header is read again only after
   * HEADER_MS.
   */
  async open(read: (source: ModelSource) => Promise<OpenedModel>, now: number): Promise<OpenedModel> {
    if (this.#opened === undefined || now - this.#opened.at > HEADER_MS) {
      this.#opened = { model: read(this.source), at: now };
    }
    try {
      const opened = await this.#opened.model;
      this.bytes = opened.bytes;
      return opened;
    } catch (error) {
      this.#opened = undefined;
      throw error;
    }
  }

  get id(): string {
    return this.source.id;
  }

  get path(): string {
    return this.source.path;
  }

  get aliases(): readonly string[] {
    return this.source.aliases;
  }

  get created(): number {
    return this.engine?.model.created ?? this.source.created;
  }

  /** Time when the model is unloaded if no request comes, on the clock of performance.now(). */
  get dueAt(): number {
    return this.usedAt + this.keepMs;
  }

  get unloadsAt(): number | undefined {
    const isDue = this.engine !== undefined && this.keepMs < Infinity;
    return isDue ? performance.timeOrigin + this.dueAt : undefined;
  }

  get state(): ModelState {
    if (this.loading) return "loading";
    if (this.engine === undefined) return this.failure ? "failed" : "unloaded";
    return this.takesNone && this.engine.state === "ready" ? "draining" : this.engine.state;
  }

  /** Whether requests can get the engine now. An engine that is reloading refuses them itself. */
  get isOpen(): boolean {
    return this.engine !== undefined && !this.takesNone;
  }

  get takesNone(): boolean {
    return this.isUnloading || this.isYielding || this.isClosing;
  }

  get isIdle(): boolean {
    return this.holds.interactive + this.holds.batch === 0;
  }

  /** Whether an interactive request waits for the model. */
  get isUrgent(): boolean {
    return this.waiters.values().some(({ priority }) => priority === "interactive");
  }

  get waitsSince(): number {
    return Math.min(...this.waiters.values().map(({ since }) => since));
  }

  hold(engine: Engine, priority: Priority, now: () => number, released: () => void): HeldEngine {
    const note = () => {
      this.usedAt = now();
      if (priority === "interactive") this.interactiveAt = this.usedAt;
    };
    this.holds[priority]++;
    note();
    let isHeld = true;
    return {
      engine,
      release: () => {
        if (!isHeld) return;
        isHeld = false;
        this.holds[priority]--;
        note();
        released();
      },
    };
  }

  /** Sets the loaded engine, and calls the listener after each change of its state. */
  start(engine: Engine, listener: (state: EngineState) => void): void {
    this.engine = engine;
    this.#opened = undefined; // the header is dropped, because it contains a large vocabulary
    engine.onState(listener);
  }
}
