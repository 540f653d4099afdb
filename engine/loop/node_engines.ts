import { OuterEngine } from "./outer_engine.ts";
import { plus } from "./totals.ts";
import type { Engine, EngineStats, RunningSequence } from "../api/engine.ts";
import type { EngineError } from "../api/errors.ts";
import type { TokenEvent } from "../api/events.ts";
import type { EmbedRequest, EmbedResult, GenerateRequest, PromptImage, Sender } from "../api/request.ts";
import type { Constraint } from "../grammar/types.ts";
import { PrefixPlaces } from "./prefix_places.ts";

/**
 * Combines engines of one model, one per NUMA node, into one engine. A request runs in the engine that computed the
 * longest prefix of its prompt, unless that engine is full and another one has a free place. The answer does not depend
 * on the engine. If one engine fails, all fail.
 */
export class NodeEngines extends OuterEngine implements Engine {
  protected readonly inner: Engine;
  /** The error of the engine that failed first. */
  #failure: EngineError | undefined;
  readonly #prefixes = new PrefixPlaces();
  /** Requests in each engine. */
  readonly #open: number[];

  /** `engines`: at least two ready engines with equal options. The new object closes them. */
  constructor(private readonly engines: readonly Engine[]) {
    super();
    this.inner = engines[0];
    this.#open = engines.map(() => 0);
    for (const engine of engines) {
      engine.onState((state) => {
        if (state !== "failed") return;
        this.#failure ??= engine.failure!;
        this.life.fail(this.#failure);
      });
    }
  }

  checkConstraint(constraint: Constraint, sender?: Sender): Promise<void> {
    return this.inner.checkConstraint(constraint, sender);
  }

  readImage(bytes: Uint8Array<ArrayBuffer>, signal?: AbortSignal, sender?: Sender): Promise<PromptImage> {
    return this.inner.readImage(bytes, signal, sender);
  }

  submit(request: GenerateRequest): AsyncIterable<TokenEvent> {
    let stream: AsyncIterator<TokenEvent> | undefined;
    let leave = () => {};
    const open = () => {
      const node = this.#prefixes.choose(request, this.#load());
      leave = this.#enter(node);
      return stream = this.engines[node].submit(request)[Symbol.asyncIterator]();
    };
    const iterator = {
      next: async () => {
        try {
          const result = await (stream ?? open()).next();
          if (result.done) leave();
          // A failure closes the other engines, which cancels their requests.
          const isCancelled = result.value?.type === "finish" && result.value.reason === "cancelled";
          if (isCancelled && this.#failure && !request.signal?.aborted) throw this.#failure;
          return result;
        } catch (error) {
          leave();
          throw error;
        }
      },
      return: () => {
        leave();
        return stream?.return?.() ?? Promise.resolve({ value: undefined, done: true as const });
      },
    };
    return { [Symbol.asyncIterator]: () => iterator };
  }

  async embed(request: EmbedRequest): Promise<EmbedResult> {
    const load = this.#load();
    const node = load.indexOf(Math.min(...load));
    const leave = this.#enter(node);
    try {
      return await this.engines[node].embed(request);
    } finally {
      leave();
    }
  }

  stats(): EngineStats {
    return this.engines.map((engine) => engine.stats()).reduce((sum, stats) => ({
      ...plus(sum, stats),
      running: sum.running + stats.running,
      waiting: sum.waiting + stats.waiting,
      kvBlocksUsed: sum.kvBlocksUsed + stats.kvBlocksUsed,
      kvBlocksTotal: sum.kvBlocksTotal + stats.kvBlocksTotal,
    }));
  }

  slots(): readonly (RunningSequence | undefined)[] {
    const slots = this.engines.flatMap((engine) => engine.slots());
    const running = slots.filter((slot) => slot !== undefined);
    return [...running, ...new Array<undefined>(slots.length - running.length).fill(undefined)];
  }

  async drain(graceMs: number): Promise<void> {
    this.life.become("draining");
    await Promise.all(this.engines.map((engine) => engine.drain(graceMs)));
  }

  async close(): Promise<void> {
    this.life.become("draining");
    await Promise.all(this.engines.map((engine) => engine.close()));
  }

  /** Returns the occupied share of each engine's places. Above 1, requests wait. */
  #load(): number[] {
    return this.#open.map((open, node) => open / Math.max(1, this.engines[node].slots().length));
  }

  /** Counts a request in an engine. Call the returned function when the request ends. */
  #enter(node: number): () => void {
    this.#open[node]++;
    let isOpen = true;
    return () => {
      if (isOpen) this.#open[node]--;
      isOpen = false;
    };
  }
}
