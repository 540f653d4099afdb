import { buildFirst } from "../shared/native_build.ts";
import type { AnsweringModel } from "../../lib/identity.ts";
import type { LineEngine } from "../../lib/batch/jobs.ts";
import { type NatsTarget, openWorkers, type WorkersOptions } from "../../lib/batch/workers.ts";
import type { EngineOptions } from "./world.ts";
import { UsageError } from "../shared/flags.ts";
import { modelPath } from "../shared/model.ts";
import { path, text, type Values } from "../shared/settings.ts";
import { natsTarget } from "./nats_target.ts";

export const NATS_SETTINGS = {
  nats: text("URL", {
    help: "the NATS server, nats://HOST[:PORT]; commas separate several; with it, workers answer the lines",
  }),
  natsCreds: path("FILE", { help: "a credentials file for that server" }),
};

export const CREDENTIALS_HELP =
  `Credentials are part of the URL (nats://USER:PASSWORD@HOST, nats://TOKEN@HOST), a file (--nats-creds), or in NATS_USER and
NATS_PASSWORD, NATS_TOKEN or NATS_CREDS, as for NATS's own tools. tls://HOST uses TLS.`;

/** Returns the NATS server in the options; without `--nats`, that of `fallback`, if any. */
export function natsOption(
  { nats, natsCreds: creds }: Values<typeof NATS_SETTINGS>,
  fallback?: string,
): NatsTarget | undefined {
  const urls = nats ?? fallback;
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

/**
 * Returns the backend that all workers of a run use. Throws for "auto", which may choose differently on each machine.
 */
export function workersBackend(backend: EngineOptions["backend"]): AnsweringModel["backend"] {
  if (backend !== "auto") return backend;
  throw new UsageError(
    '--backend must be cpu, wasm or webgpu with --nats (got "auto"): all workers must have the same',
  );
}

/** Opens workers on NATS, which replace the engine in this process. */
export async function openRunWorkers(
  target: NatsTarget,
  { model, contextLength, kvType, activations, backend, arithmetic, pooling, chatTemplate, lora, mmproj }:
    EngineOptions,
  options: WorkersOptions,
): Promise<LineEngine> {
  const path = modelPath(model);
  await buildFirst(backend); // a job names its backend, and workers compute natively
  const computed = {
    backend: workersBackend(backend),
    arithmetic,
    kvType,
    activations,
    pooling,
    chatTemplate,
    lora,
    mmproj,
  };
  return await openWorkers(target, { path, contextLength, ...computed }, options);
}
