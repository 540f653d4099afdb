/** Jobs whose lines are answered on other machines through NATS, for compy's own commands. */
import type { Engine } from "../../engine/mod.ts";
import { GgufError } from "../../engine/load/load.ts";
import { BatchError } from "../../jobs/errors.ts";
import { type NatsTarget, openConnection } from "../../jobs/nats/connection.ts";
import { Coordinator } from "../../jobs/nats/coordinator.ts";
import { type AnsweringModel, identifyModel } from "../identity.ts";
import type { LineEngine } from "./jobs.ts";

export { type NatsTarget, openConnection } from "../../jobs/nats/connection.ts";
export { runWorker, type WorkerCounts } from "../../jobs/nats/worker.ts";

export interface WorkersOptions {
  readonly drainSignal: AbortSignal;
  readonly note: (text: string) => void;
}

/**
 * Opens workers on NATS, which replace the engine in this process. Reads only the header and some pages of
 * the model.
 */
export async function openWorkers(
  target: NatsTarget,
  model: AnsweringModel,
  { drainSignal, note }: WorkersOptions,
): Promise<LineEngine> {
  const settings = await identifyModel(model).catch((cause) => {
    if (!(cause instanceof GgufError)) throw cause;
    throw new Error(`Cannot run the model ${model.path}: ${cause.message}`, { cause });
  });
  const connection = await openConnection(target, "compy batch run", note);
  const close = () => connection.nats.close();
  try {
    const coordinator = await Coordinator.open({ connection, model: settings, drainSignal, note });
    return {
      execute: coordinator.execute,
      settings,
      close: async () => {
        const { repeated, late } = coordinator.stats;
        if (repeated > 0) {
          note(`${repeated} times lines were handed out again, ${late} late answers were dropped`);
        }
        await coordinator.close();
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Returns a signal that aborts when the engine has failed permanently. */
export function failureOf(engine: Engine): AbortSignal {
  const failed = new AbortController();
  const look = () => {
    if (engine.state !== "failed") return;
    const message = `${engine.failure?.message}. The lines in flight go to other workers`;
    failed.abort(new BatchError("engine_unavailable", message, true, { cause: engine.failure }));
  };
  engine.onState(look);
  look();
  return failed.signal;
}
