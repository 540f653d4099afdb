/** A model pool with fake engines, which load at once or when a test permits. */
import { FakeEngine } from "../../routes/testing.ts";
import type { Engine } from "../api/engine.ts";
import { ModelPool } from "./pool.ts";
import type { PoolOptions } from "./pool_options.ts";
import type { ModelSource } from "./slot.ts";

export interface TestPool {
  readonly pool: ModelPool;
  /** Events in order: "load a", "close a". */
  readonly log: string[];
  readonly notes: string[];
  readonly sources: ModelSource[];
  /** Returns the bytes of all loaded models. */
  readonly loaded: () => number;
  /** Engines of the loaded models. */
  readonly engines: Map<string, FakeEngine>;
}

export interface TestPoolOptions extends Partial<PoolOptions> {
  /** Bytes of each model; by default three models of 10. */
  readonly models?: Record<string, number>;
  /** Called when the header of a model is read. */
  readonly opening?: (id: string) => void;
  /** Promise that delays the load of a model. */
  readonly loading?: (id: string, signal: AbortSignal) => Promise<unknown>;
  readonly tokenMs?: number;
}

export const source = (id: string, aliases: string[] = []): ModelSource => ({
  id,
  aliases,
  path: `/models/${id}.gguf`,
  created: 1,
});

/**
 * Returns a pool of fake engines, by default with memory for two of three. Throws if loaded models exceed the budget.
 */
export function testPool(options: TestPoolOptions = {}): TestPool {
  const models = options.models ?? { a: 10, b: 10, c: 10 };
  const budget = options.budget ?? 20;
  const [log, notes, engines]: [string[], string[], Map<string, FakeEngine>] = [[], [], new Map()];
  const sources = Object.keys(models).map((id) => source(id, [`${id}-alias`]));
  const loaded = () => [...engines.keys()].reduce((sum, id) => sum + models[id], 0);
  const load = async (id: string, signal: AbortSignal): Promise<Engine> => {
    log.push(`load ${id}`);
    await options.loading?.(id, signal);
    signal.throwIfAborted();
    if (loaded() + models[id] > budget) throw new Error(`${loaded()} + ${models[id]} bytes are too many`);
    const engine = new FakeEngine({ tokenMs: options.tokenMs ?? 1, reply: (prompt) => `${id}: ${prompt}` });
    engine.model.id = id;
    const close = engine.close.bind(engine);
    engine.close = async () => {
      await close();
      engines.delete(id);
      log.push(`close ${id}`);
    };
    engines.set(id, engine);
    return engine;
  };
  const pool = new ModelPool({
    offers: () => sources,
    open: ({ id }) =>
      Promise.try(() => {
        options.opening?.(id);
        return { bytes: models[id], load: (signal) => load(id, signal) };
      }),
    note: (message) => notes.push(message),
    turns: { patienceMs: 20, turnMs: 20, batchTurnMs: 300, pauseMs: 50, quietMs: 100 },
    ...options,
    budget,
  });
  return { pool, log, notes, sources, loaded, engines };
}
