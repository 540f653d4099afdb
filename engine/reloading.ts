import { delay } from "@std/async/delay.js";
import { EngineLife } from "./engine_life.ts";
import type { ChatMessage, ChatTemplateOptions } from "./tokenizer/types.ts";
import { type Counted, Totals } from "./totals.ts";
import {
  type Constraint,
  type DiskStats,
  type EmbedRequest,
  type EmbedResult,
  type Engine,
  EngineError,
  type EngineState,
  type EngineStats,
  type GenerateRequest,
  type RunningSequence,
  type TokenEvent,
} from "./types.ts";

export interface ReloadOptions {
  /** Loads the engine again, after that failure; the failed one is closed by then. Ends early where the signal says so. */
  readonly load: (signal: AbortSignal, failure: unknown) => Promise<Engine>;
  /** Told what an operator should know, a line each. */
  readonly note: (message: string) => void;
  /** Most loads within `withinMs`; a failure after them is final. */
  readonly times?: number;
  readonly withinMs?: number;
  /** Before each load but the first of those: what broke the engine may need time to pass. */
  readonly pauseMs?: number;
}

const DEFAULTS = { times: 3, withinMs: 10 * 60_000, pauseMs: 5000 };

/**
 * An engine that is loaded again when it fails. What ran in it ends with its error; until the new one is there, this one
 * is `loading` and refuses requests with `engine_unavailable`. It is `failed` only when it is not loaded again.
 */
export class ReloadingEngine implements Engine {
  #inner: Engine;
  readonly #options: Required<ReloadOptions>;
  readonly #life = new EngineLife("ready");
  readonly #stop = new AbortController();
  /** When it was loaded again, in milliseconds, ascending; none older than `withinMs`. */
  #loads: number[] = [];
  /** The engine, once it has failed: `#totals` have its figures. */
  #counted: Engine | undefined;
  #reloading: Promise<void> = Promise.resolve();
  /** Of the engines that failed. */
  #totals: Summed = { ...new Totals().stats(), preemptions: 0 };

  /** `engine` is ready; this one closes it. */
  constructor(engine: Engine, options: ReloadOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.#inner = engine;
    this.#watch(engine);
  }

  get model() {
    return this.#inner.model;
  }

  get tokenizer() {
    return this.#inner.tokenizer;
  }

  get chatTemplate() {
    return this.#inner.chatTemplate;
  }

  get chatForm() {
    return this.#inner.chatForm;
  }

  get state(): EngineState {
    return this.#life.state;
  }

  get failure(): EngineError | undefined {
    return this.#life.failure;
  }

  onState(listener: (state: EngineState) => void): () => void {
    return this.#life.onState(listener);
  }

  encodePrompt(text: string): number[] {
    return this.#inner.encodePrompt(text);
  }

  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[] {
    return this.#inner.encodeChat(messages, options);
  }

  encodePair(query: string, document: string): number[] {
    return this.#inner.encodePair(query, document);
  }

  checkConstraint(constraint: Constraint): Promise<void> {
    return this.state === "loading" ? Promise.reject(reloading()) : this.#inner.checkConstraint(constraint);
  }

  submit(request: GenerateRequest): AsyncIterable<TokenEvent> {
    return this.state === "loading" ? refusing() : this.#inner.submit(request);
  }

  embed(request: EmbedRequest): Promise<EmbedResult> {
    return this.state === "loading" ? Promise.reject(reloading()) : this.#inner.embed(request);
  }

  stats(): EngineStats {
    const stats = this.#inner.stats();
    return { ...stats, ...this.#counted === this.#inner ? this.#totals : plus(this.#totals, stats) };
  }

  slots(): readonly (RunningSequence | undefined)[] {
    return this.#inner.slots();
  }

  async drain(graceMs: number): Promise<void> {
    this.#life.become("draining");
    this.#stop.abort();
    await this.#reloading;
    await this.#inner.drain(graceMs);
  }

  async close(): Promise<void> {
    this.#life.become("draining");
    this.#stop.abort();
    await this.#reloading;
    await this.#inner.close();
  }

  #watch(engine: Engine): void {
    const unlisten = engine.onState((state) => {
      if (state !== "failed") return;
      unlisten();
      this.#totals = plus(this.#totals, engine.stats());
      this.#counted = engine;
      if (!this.#stop.signal.aborted && this.#mayLoad(engine.failure)) this.#reloading = this.#reload(engine);
    });
  }

  async #reload(failed: Engine): Promise<void> {
    const { load, note, pauseMs } = this.#options;
    const { signal } = this.#stop;
    let failure: unknown = failed.failure; // closed, it has none
    try {
      await failed.close();
    } catch (error) {
      note(`Cannot close the failed engine: ${words(error)}`);
    }
    while (!signal.aborted) {
      if (this.#loads.length > 1) await delay(pauseMs, { signal }).catch(() => {});
      try {
        signal.throwIfAborted();
        this.#inner = await load(signal, failure);
      } catch (error) {
        failure = error;
        if (signal.aborted || !this.#mayLoad(error)) return;
        continue;
      }
      this.#watch(this.#inner);
      note("The engine is ready again");
      this.#life.become("ready");
      return;
    }
  }

  /** Whether the engine is to be loaded once more after this failure; says so, and moves to that state. */
  #mayLoad(cause: unknown): boolean {
    const { note, times, withinMs } = this.#options;
    const now = performance.now();
    this.#loads = this.#loads.filter((at) => now - at < withinMs);
    const minutes = `${withinMs / 60_000} minutes`;
    if (this.#loads.length < times) {
      this.#loads.push(now);
      note(
        `${words(cause)}; loading it again (${this.#loads.length} of at most ${times} times in ${minutes})`,
      );
      this.#life.become("loading");
      return true;
    }
    const message = `${words(cause)}; it was loaded again ${times} times in ${minutes} and is given up`;
    const failure = new EngineError("engine_failed", message);
    failure.cause = cause;
    this.#life.fail(failure);
    return false;
  }
}

/** A stream of nobody's: the refusal comes from the first `next()`, as an engine's own. */
function refusing(): AsyncIterable<TokenEvent> {
  const next = () => Promise.reject(reloading());
  return { [Symbol.asyncIterator]: () => ({ next }) };
}

function reloading(): EngineError {
  const message = "The engine has failed and is being loaded again; send the request again later";
  return new EngineError("engine_unavailable", message);
}

type Summed = Counted & Pick<EngineStats, "preemptions" | "disk">;

function plus(a: Summed, b: Summed): Summed {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    generatedTokens: a.generatedTokens + b.generatedTokens,
    forcedTokens: a.forcedTokens + b.forcedTokens,
    draftedTokens: a.draftedTokens + b.draftedTokens,
    acceptedTokens: a.acceptedTokens + b.acceptedTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    steps: a.steps + b.steps,
    rows: a.rows + b.rows,
    stepRows: b.stepRows.map((count, i) => count + (a.stepRows[i] ?? 0)),
    submits: a.submits + b.submits,
    deviceLosses: a.deviceLosses + b.deviceLosses,
    preemptions: a.preemptions + b.preemptions,
    disk: a.disk && b.disk ? plusDisk(a.disk, b.disk) : b.disk ?? a.disk,
  };
}

/** What is on the disk is the later engine's to say. */
function plusDisk(a: DiskStats, b: DiskStats): DiskStats {
  return {
    ...b,
    hits: a.hits + b.hits,
    tokens: a.tokens + b.tokens,
    readBytes: a.readBytes + b.readBytes,
    writes: a.writes + b.writes,
    writtenBytes: a.writtenBytes + b.writtenBytes,
  };
}

function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
