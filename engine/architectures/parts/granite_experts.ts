import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { TensorName } from "../architecture.ts";
import type { Residual } from "./mamba_hybrid.ts";
import { type SharedExperts, sharedMixture } from "./shared_experts.ts";

/**
 * Reads Granite's experts. The feed-forward key gives each expert's width. The shared expert's gate and up may be one
 * tensor, as in checkpoints. Returns undefined if the model has no experts.
 */
export function readGraniteExperts(
  file: GgufFile,
  h: Hparams,
  keys: ArchitectureKeys,
): SharedExperts | undefined {
  if (keys.metadata.getCount(keys.name("expert_count"), 0) === 0) return undefined;
  const { count, used } = readExpertHparams(file, h);
  const shared = keys.metadata.getCount(keys.name("expert_shared_feed_forward_length"), 0);
  const sharedFused = !file.tensors.has("blk.0.ffn_gate_shexp.weight");
  return { count, used, feedForwardLength: h.feedForwardLength, shared, sharedFused };
}

/** Adds the output of Granite's experts for x, times the residual factor. */
export function addGraniteMixture(
  b: PlanBuilder,
  x: Value,
  experts: SharedExperts,
  name: TensorName,
  residual: Residual,
): void {
  sharedMixture(b, x, experts, name, residual, { scale: residual.times });
}
