import { inspectModel } from "../engine/inspect.ts";
import { type NatsTarget, openConnection } from "../jobs/nats/connection.ts";
import { Coordinator } from "../jobs/nats/coordinator.ts";
import { type AnsweringModel, identifyModel } from "../lib/identity.ts";
import type { EngineOptions, LineEngine } from "./batch_world.ts";
import { type Flags, UsageError } from "./flags.ts";
import { modelPath } from "./model.ts";
import { natsTarget } from "./nats_target.ts";

export const NATS_FLAGS = ["nats", "nats-creds"];

export const CREDENTIALS_HELP =
  `Credentials are part of the URL (nats://USER:PASSWORD@HOST, nats://TOKEN@HOST), a file (--nats-creds), or in
NATS_USER and NATS_PASSWORD, NATS_TOKEN or NATS_CREDS, as for NATS's own tools. tls://HOST asks for TLS.`;

/** The server that the options name; without `--nats` the one of `fallback`, undefined where that is none. */
export function natsFlags(flags: Flags, fallback?: string): NatsTarget | undefined {
  const urls = flags.text("nats") ?? fallback;
  const creds = flags.text("nats-creds");
  if (urls === undefined) {
    if (creds !== undefined) throw new UsageError("--nats-creds belongs to --nats, which is missing");
    return undefined;
  }
  try {
    return natsTarget(urls, creds, (name) => Deno.env.get(name));
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** What all workers of a run compute with: "auto" may be another one on each machine, and is refused. */
export function workersBackend(backend: EngineOptions["backend"]): AnsweringModel["backend"] {
  if (backend !== "auto") return backend;
  throw new UsageError(
    '--backend must be cpu, wasm or webgpu with --nats (got "auto"): all workers must have the same',
  );
}

/** Workers on NATS in the place of an engine in this process. Of the model only the header and some pages are read. */
export async function openWorkers(
  target: NatsTarget,
  { model, contextLength, kvType, backend, arithmetic, pooling }: EngineOptions,
  { drainSignal, note }: { drainSignal: AbortSignal; note: (text: string) => void },
): Promise<LineEngine> {
  const path = modelPath(model);
  const { plan } = await inspectModel({ model: path, contextLength, kvType });
  if ("refusal" in plan) throw new Error(`Cannot run the model ${path}: ${plan.refusal}`);
  const settings = await identifyModel({
    path,
    contextLength: plan.contextLength,
    backend: workersBackend(backend),
    arithmetic,
    kvType,
    pooling,
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
