import { DEFAULT_KV_TYPE, type KvType, type LoadedEngine } from "../../lib/model.ts";
import { describeBackend } from "../shared/model.ts";

/** Describes the loaded model in one line. */
export function describe(loaded: LoadedEngine, kvType: KvType = DEFAULT_KV_TYPE): string {
  const { id, architecture } = loaded.engine.model;
  const { weights, activations, states, kv } = loaded.memory;
  return [
    `${id}: ${architecture}, ${describeContext(loaded)}, loaded in ${(loaded.loadMs / 1000).toFixed(1)} s`,
    describeBackend(loaded.backend.info, loaded.choice) +
    (loaded.nodes ? ` on each of ${loaded.nodes} NUMA nodes` : ""),
    `weights ${megabytes(weights)}, ` +
    (loaded.kvTokens > 0
      ? `KV cache in ${kvType} ${megabytes(kv)} once full (${loaded.kvTokens} tokens), `
      : "") +
    (states > 0 ? `recurrent states ${megabytes(states)}, ` : "") + `activations ${megabytes(activations)}`,
  ].join("; ");
}

/** Returns a text about the context window: its length, and why it is not longer. */
function describeContext({ engine: { model }, cut }: LoadedEngine): string {
  const { contextLength, trainedContext } = model;
  const context = `${contextLength} tokens of context`;
  if (cut === undefined) return contextLength === trainedContext ? `${context} (the model's own)` : context;
  return `${context} (the model's own ${cut.own} take ${
    megabytes(cut.ownBytes)
  } of KV cache, and it may have ` +
    `${megabytes(cut.available)}; --ctx allows more)`;
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
