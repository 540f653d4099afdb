import type { Engine, EngineState } from "../types.ts";
import type { HeldEngine, ModelState, OfferedModel, UseOptions } from "./types.ts";

/** A model file, and what requests may call it. */
export interface ModelSource {
  readonly id: string;
  readonly aliases: readonly string[];
  readonly path: string;
  /** Unix seconds, of the file. */
  readonly created: number;
}

/** A model whose header was read and found good. */
export interface OpenedModel {
  /** Bytes that it takes once everything is full. */
  readonly bytes: number;
  load(signal: AbortSignal): Promise<Engine>;
}

/** A header that was read is taken for true so long, in milliseconds. */
const HEADER_MS = 10_000;

type Priority = NonNullable<UseOptions["priority"]>;

/** A request that waits for the model. */
export interface Waiter {
  readonly priority: Priority;
  /** In milliseconds, as all times here. */
  since: number;
  readonly resolve: (held: HeldEngine) => void;
  readonly reject: (reason: unknown) => void;
}

/** What a pool knows of one model: its engine where it is loaded, who uses it and who waits for it. */
export class Slot implements OfferedModel {
  engine: Engine | undefined;
  /** Of the header that was read last; what a loaded engine takes. */
  bytes = 0;
  loading: AbortController | undefined;
  /** It takes no new requests, and is closed when those that run have ended. */
  isUnloading = false;
  /** The same, as long as another model waits for its room. */
  isYielding = false;
  isClosing = false;
  failure: Error | undefined;
  failedAt = -Infinity;
  loadedAt = -Infinity;
  /** The last use began or ended then. */
  usedAt = -Infinity;
  interactiveAt = -Infinity;
  readonly holds = { interactive: 0, batch: 0 };
  readonly waiters = new Set<Waiter>();
  /** Resolved when it is not loaded any more. */
  readonly gone: (() => void)[] = [];

  #opened: { readonly model: Promise<OpenedModel>; readonly at: number } | undefined;

  constructor(readonly source: ModelSource) {}

  /** Its header, which is not read again while the model waits for room, but now and then. */
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

  get state(): ModelState {
    if (this.loading) return "loading";
    if (this.engine === undefined) return this.failure ? "failed" : "unloaded";
    return this.takesNone && this.engine.state === "ready" ? "draining" : this.engine.state;
  }

  /** Whether requests can have its engine now. One that is being loaded again refuses them itself. */
  get isOpen(): boolean {
    return this.engine !== undefined && !this.takesNone;
  }

  get takesNone(): boolean {
    return this.isUnloading || this.isYielding || this.isClosing;
  }

  get isIdle(): boolean {
    return this.holds.interactive + this.holds.batch === 0;
  }

  /** Whether a request waits that is no batch's. */
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

  /** It is loaded. Calls the listener after each change of the engine's state. */
  start(engine: Engine, listener: (state: EngineState) => void): void {
    this.engine = engine;
    this.#opened = undefined; // a header with its vocabulary is large
    engine.onState(listener);
  }
}
