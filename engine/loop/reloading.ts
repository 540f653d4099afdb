import { delay } from "@std/async/delay.js";
import { OuterEngine } from "./outer_engine.ts";
import { plus, type Summed, Totals } from "./totals.ts";
import type { Engine, EngineStats, RunningSequence } from "../api/engine.ts";
import { EngineError, worded, wordingOf, type Words } from "../api/errors.ts";
import type { TokenEvent } from "../api/events.ts";
import type { EmbedRequest, EmbedResult, GenerateRequest, PromptImage, Sender } from "../api/request.ts";
import type { Constraint } from "../grammar/types.ts";

export interface ReloadOptions {
  /**
   * Loads the engine again after `failure`; the failed engine is already closed. Ends early when `signal` is aborted.
   */
  readonly load: (signal: AbortSignal, failure: unknown) => Promise<Engine>;
  /** Receives messages for the operator, one line each. */
  readonly note: (message: string) => void;
  /** Words for settings in notes; by default library options. */
  readonly words?: Words;
  /** Maximum reloads within `withinMs`; the next failure is final. With 0 the first failure is final. */
  readonly times?: number;
  readonly withinMs?: number;
  /**
   * Milliseconds before each reload except the first within `withinMs`: the cause of a failure may need time to pass.
   */
  readonly pauseMs?: number;
  /**
   * Milliseconds that `moveTo`, without memory for two engines, waits for an idle engine, and then holds new requests
   * to get one.
   */
  readonly patienceMs?: number;
  readonly holdMs?: number;
}

const DEFAULTS = { times: 3, withinMs: 10 * 60_000, pauseMs: 5000, patienceMs: 60_000, holdMs: 30_000 };
/** Maximum number of held requests during a move. */
const MOST_HELD = 256;
const LOOK_MS = 20;
/** Longest delay of setTimeout; it fires at once for longer ones. */
const NO_END_MS = 2 ** 31 - 1;

/**
 * An engine that is reloaded when it fails. Its running requests end with the error. Until the new engine is ready, the
 * state is `loading` and it refuses requests with `engine_unavailable`. The state is `failed` only if no reload
 * follows.
 *
 * `moveTo` replaces a working engine: running requests end in the old one.
 */
export class ReloadingEngine extends OuterEngine implements Engine {
  protected inner: Engine;
  readonly #options: Required<Omit<ReloadOptions, "words">> & Pick<ReloadOptions, "words">;
  readonly #stop = new AbortController();
  /** Times of the reloads within `withinMs`, in milliseconds, ascending. */
  #loads: number[] = [];
  /** The present engine, if it has stopped and `#totals` already include its figures. */
  #counted: Engine | undefined;
  #reloading: Promise<void> = Promise.resolve();
  /** The replaced engine, while requests still run in it. */
  #leaving: Engine | undefined;
  #left: Promise<void> = Promise.resolve();
  #moving: Promise<void> = Promise.resolve();
  /** Promise that resolves when held requests may continue. */
  #hold: PromiseWithResolvers<void> | undefined;
  #held = 0;
  /** Summed figures of the engines that have stopped. */
  #totals: Summed = { ...new Totals().stats(), preemptions: 0, loosenedKeywords: 0 };

  /** `engine` must be ready. The new object closes it. */
  constructor(engine: Engine, options: ReloadOptions) {
    super();
    this.#options = { ...DEFAULTS, ...options };
    this.inner = engine;
    this.#watch(engine);
  }

  async checkConstraint(constraint: Constraint, sender?: Sender): Promise<void> {
    const engine = await this.#open();
    try {
      await engine.checkConstraint(constraint, sender);
    } catch (error) {
      // The engine was replaced during the check, so the check is repeated with the new one.
      if (engine === this.inner || this.state !== "ready") throw error;
      await this.checkConstraint(constraint, sender);
    }
  }

  submit(request: GenerateRequest): AsyncIterable<TokenEvent> {
    let stream: AsyncIterator<TokenEvent> | Promise<AsyncIterator<TokenEvent>> | undefined;
    const begin = (engine: Engine) => stream = engine.submit(request)[Symbol.asyncIterator]();
    // The stream is opened at the first `next()`: until then the engine may be replaced.
    const open = () => {
      const engine = this.#open(request.signal);
      return stream = engine instanceof Promise ? engine.then(begin) : begin(engine);
    };
    const leave = (stream: AsyncIterator<TokenEvent> | undefined) =>
      stream?.return?.() ?? Promise.resolve({ value: undefined, done: true as const });
    const iterator = {
      next: () => {
        const opened = stream ?? open();
        return opened instanceof Promise ? opened.then((events) => events.next()) : opened.next();
      },
      return: () => stream instanceof Promise ? stream.then(leave) : leave(stream),
    };
    return { [Symbol.asyncIterator]: () => iterator };
  }

  async readImage(
    bytes: Uint8Array<ArrayBuffer>,
    signal?: AbortSignal,
    sender?: Sender,
  ): Promise<PromptImage> {
    return await (await this.#open(signal)).readImage(bytes, signal, sender);
  }

  async embed(request: EmbedRequest): Promise<EmbedResult> {
    return await (await this.#open(request.signal)).embed(request);
  }

  stats(): EngineStats {
    const stats = this.inner.stats();
    const leaving = this.#leaving?.stats();
    const summed = this.#counted === this.inner ? this.#totals : plus(this.#totals, stats);
    return {
      ...stats,
      ...leaving ? plus(summed, leaving) : summed,
      running: stats.running + (leaving?.running ?? 0),
      waiting: stats.waiting + (leaving?.waiting ?? 0) + this.#held,
    };
  }

  slots(): readonly (RunningSequence | undefined)[] {
    const leaving = this.#leaving?.slots().filter((slot) => slot !== undefined) ?? [];
    return [...leaving, ...this.inner.slots()];
  }

  async drain(graceMs: number): Promise<void> {
    await this.#settle();
    await Promise.all([this.inner.drain(graceMs), this.#leaving?.drain(graceMs)]);
  }

  async close(): Promise<void> {
    await this.#settle();
    await Promise.all([this.inner.close(), this.#leaving?.close(), this.#left]);
  }

  /**
   * Replaces the engine by another one of the same model, and closes the old one when its requests have ended.
   *
   * With `alongside` there is memory for both, so new requests use the new engine as soon as it is loaded. Otherwise
   * new requests wait, and the old engine is closed first, when it is idle. Rejects as `load` does; then the old
   * engine, or one from `options.load`, continues.
   */
  moveTo(load: (signal: AbortSignal) => Promise<Engine>, alongside: boolean): Promise<void> {
    const moved = alongside ? this.#moveAlongside(load) : this.#moveApart(load);
    this.#moving = moved.catch(() => {});
    return moved;
  }

  async #moveAlongside(load: (signal: AbortSignal) => Promise<Engine>): Promise<void> {
    const { signal } = this.#stop;
    const next = await load(signal);
    await this.#reloading;
    if (signal.aborted || this.state !== "ready") {
      await next.close();
      signal.throwIfAborted();
      throw this.failure ?? reloading();
    }
    const old = this.inner;
    this.#become(next);
    this.#leaving = old;
    this.#left = this.#leave(old);
  }

  /** Waits until the requests of the replaced engine have ended, adds its figures, and closes it. */
  async #leave(old: Engine): Promise<void> {
    await old.drain(NO_END_MS);
    this.#totals = plus(this.#totals, old.stats());
    this.#leaving = undefined;
    await old.close().catch((error) =>
      this.#options.note(`Cannot close the previous engine: ${worded(error, this.#options.words)}`)
    );
  }

  async #moveApart(load: (signal: AbortSignal) => Promise<Engine>): Promise<void> {
    const { signal } = this.#stop;
    try {
      await this.#holdWhenIdle();
      const old = this.inner;
      this.#count(old);
      await old.close();
      try {
        this.#become(await load(signal));
      } catch (error) {
        signal.throwIfAborted();
        this.#become(await this.#options.load(signal, error));
        throw error;
      }
    } catch (error) {
      // No engine is loaded now, so the previous one is reloaded as after a failure.
      if (this.#counted === this.inner && !signal.aborted && this.#mayLoad(error)) {
        this.#reloading = this.#reload(this.inner);
      }
      throw error;
    } finally {
      this.#release();
    }
  }

  /** Resolves when no request runs and new requests are held. */
  async #holdWhenIdle(): Promise<void> {
    const { patienceMs, holdMs } = this.#options;
    for (;;) {
      await this.#idleWithin(patienceMs);
      this.#hold = Promise.withResolvers();
      if (await this.#idleWithin(holdMs)) return;
      this.#release(); // the running requests take too long, so new requests must not wait
    }
  }

  async #idleWithin(ms: number): Promise<boolean> {
    for (const end = performance.now() + ms;; await delay(LOOK_MS)) {
      this.#stop.signal.throwIfAborted();
      if (this.failure) throw this.failure;
      const { running, waiting } = this.inner.stats();
      if (running + waiting === 0 && this.state === "ready") return true;
      if (performance.now() >= end) return false;
    }
  }

  #release(): void {
    this.#hold?.resolve();
    this.#hold = undefined;
  }

  /** Returns the engine for a new request, or a promise if the request must wait. Rejects for a refused request. */
  #open(signal?: AbortSignal): Engine | Promise<Engine> {
    if (this.state === "loading") return Promise.reject(reloading());
    if (this.#hold === undefined) return this.inner;
    if (this.#held >= MOST_HELD) {
      return Promise.reject(
        new EngineError("queue_full", `${MOST_HELD} requests wait for the engine already`),
      );
    }
    return this.#wait(this.#hold.promise, signal);
  }

  async #wait(held: Promise<void>, signal?: AbortSignal): Promise<Engine> {
    const left = Promise.withResolvers<void>();
    const leave = () => left.resolve(); // the engine itself handles requests that are cancelled while waiting
    signal?.addEventListener("abort", leave);
    this.#held++;
    try {
      await Promise.race([held, left.promise]);
    } finally {
      this.#held--;
      signal?.removeEventListener("abort", leave);
    }
    if (this.state === "loading") throw reloading();
    return this.inner;
  }

  /** Stops all reloads and moves for good. */
  async #settle(): Promise<void> {
    this.life.become("draining");
    this.#stop.abort();
    this.#release();
    await this.#moving;
    await this.#reloading;
  }

  #become(engine: Engine): void {
    this.inner = engine;
    this.#watch(engine);
  }

  #count(engine: Engine): void {
    this.#totals = plus(this.#totals, engine.stats());
    this.#counted = engine;
  }

  #watch(engine: Engine): void {
    const unlisten = engine.onState((state) => {
      if (state !== "failed") return;
      unlisten();
      if (engine !== this.inner) return;
      this.#count(engine);
      if (!this.#stop.signal.aborted && this.#mayLoad(engine.failure)) this.#reloading = this.#reload(engine);
    });
  }

  async #reload(failed: Engine): Promise<void> {
    const { load, note, pauseMs } = this.#options;
    const { signal } = this.#stop;
    let failure: unknown = failed.failure; // read now, because a closed engine has no failure
    try {
      await failed.close();
    } catch (error) {
      note(`Cannot close the failed engine: ${worded(error, this.#options.words)}`);
    }
    while (!signal.aborted) {
      if (this.#loads.length > 1) await delay(pauseMs, { signal }).catch(() => {});
      try {
        signal.throwIfAborted();
        this.#become(await load(signal, failure));
      } catch (error) {
        failure = error;
        if (signal.aborted || !this.#mayLoad(error)) return;
        continue;
      }
      note("The engine is ready again");
      this.life.become("ready");
      return;
    }
  }

  /** Returns whether to reload the engine after this failure. Notes the decision and changes the state. */
  #mayLoad(cause: unknown): boolean {
    const { note, times, withinMs } = this.#options;
    const now = performance.now();
    this.#loads = this.#loads.filter((at) => now - at < withinMs);
    if (times === 0) {
      this.life.fail(
        cause instanceof EngineError ? cause : new EngineError("engine_failed", wordingOf(cause)),
      );
      return false;
    }
    const minutes = `${withinMs / 60_000} minutes`;
    if (this.#loads.length < times) {
      this.#loads.push(now);
      note(
        `${
          worded(cause, this.#options.words)
        }; loading it again (${this.#loads.length} of at most ${times} times in ${minutes})`,
      );
      this.life.become("loading");
      return true;
    }
    const end = `; it was loaded again ${times} times in ${minutes} and is not loaded again`;
    const message = [...wordingOf(cause), end];
    const failure = new EngineError("engine_failed", message);
    failure.cause = cause;
    this.life.fail(failure);
    return false;
  }
}

function reloading(): EngineError {
  const message = "The engine has failed and is being loaded again; send the request again later";
  return new EngineError("engine_unavailable", message);
}
