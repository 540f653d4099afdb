/** Selects decoders for tests. One architecture represents all that compile to the same kinds of ops and cache. */
import { readPlan } from "../../../engine/architectures/registry.ts";
import { parseGguf } from "../../../engine/gguf/reader.ts";
import type { Plan } from "../../../engine/plan/plan.ts";
import { DECODERS } from "../parity_cases.ts";
import { type Architecture, synthesize } from "../../../testing/synth/synth.ts";
import { isFullTier } from "../../../testing/tier.ts";

/**
 * `windowed` models have layers that attend to a window, `hybrid` models also have layers with a recurrent state, and
 * `recurrent` models have only such layers.
 */
export type Kind =
  | "dense"
  | "windowed dense"
  | "mixture"
  | "windowed mixture"
  | "hybrid"
  | "recurrent"
  | "hybrid mixture";

export interface Decoder {
  readonly architecture: Architecture;
  readonly kind: Kind;
  /** Names of the plan's ops. The op `choose` has two names: with weights, and without. */
  readonly ops: ReadonlySet<string>;
  /** Signature of the plan, equal for models with the same ops and the same kinds of cache. */
  readonly signature: string;
  /** Bytes of the model file. */
  readonly size: number;
}

function kindOf(ops: ReadonlySet<string>, { states, kv }: Plan): Kind {
  const feedForward = ops.has("route") ? "mixture" : "dense";
  if (kv.layers.length === 0) return "recurrent";
  if (states.length > 0) return ops.has("route") ? "hybrid mixture" : "hybrid";
  return kv.windows.length > 1 ? `windowed ${feedForward}` : feedForward;
}

async function describe(architecture: Architecture): Promise<Decoder> {
  const bytes = synthesize({ architecture, seed: 1, types: ["Q8_0"], hollow: true });
  const file = parseGguf(bytes);
  const plan = await readPlan(file);
  const ops = new Set<string>(
    plan.ops.map((op) => op.op === "choose" && op.weights === undefined ? "choose, by head" : op.op),
  );
  const kind = kindOf(ops, plan);
  return { architecture, kind, ops, signature: JSON.stringify([[...ops].sort(), kind]), size: bytes.length };
}

/** Returns the decoder with the smallest model file for each signature. */
function representatives(decoders: readonly Decoder[]): Decoder[] {
  const found = new Map<string, Decoder>();
  for (const decoder of decoders) {
    if (decoder.size < (found.get(decoder.signature)?.size ?? Infinity)) {
      found.set(decoder.signature, decoder);
    }
  }
  return [...found.values()];
}

/** Returns the decoders that this tier tests: all in the second tier, one per signature in the first. */
export async function decodersOfTier(): Promise<Decoder[]> {
  const all = await Promise.all(DECODERS.map(describe));
  return isFullTier ? all : representatives(all);
}

/**
 * Returns the decoders without those all of whose ops another decoder of the same kind has. Each op promises by itself
 * that a row's bits do not depend on other rows, so a test of this promise needs each op, but not each set of ops.
 */
export function withAllOps(decoders: readonly Decoder[]): Decoder[] {
  const all = representatives(decoders);
  return all.filter(({ kind, ops, signature }) =>
    !all.some((other) => other.kind === kind && other.signature !== signature && ops.isSubsetOf(other.ops))
  );
}

/** Returns one decoder per signature; in the first tier only the smallest decoder of each kind. */
export async function kindsOfTier(): Promise<Decoder[]> {
  const decoders = representatives(await decodersOfTier()).sort((a, b) => a.size - b.size);
  return isFullTier
    ? decoders
    : decoders.filter(({ kind }, i) => decoders.findIndex((d) => d.kind === kind) === i);
}
