import type { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import { type ExpertHparams, readExpertHparams } from "../gguf/expert_hparams.ts";
import type { Hparams } from "../gguf/hparams.ts";
import type { GgufFile } from "../gguf/types.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { glu } from "../plan/ops/glu.ts";
import { linear } from "../plan/ops/matmul.ts";
import type { TensorName } from "./architecture.ts";
import type { Residual } from "./mamba_hybrid.ts";
import { mixture } from "./mixture.ts";

/** Granite's mixtures of experts. */
export interface GraniteExperts extends ExpertHparams {
  /** Width of the expert that every row goes through; 0 where there is none. */
  readonly shared: number;
}

/** An expert is as wide as the feed-forward's key says. Undefined where the model has none. */
export function readGraniteExperts(
  file: GgufFile,
  h: Hparams,
  keys: ArchitectureKeys,
): GraniteExperts | undefined {
  if (keys.metadata.getCount(keys.name("expert_count"), 0) === 0) return undefined;
  const { count, used } = readExpertHparams(file, h);
  const shared = keys.metadata.getCount(keys.name("expert_shared_feed_forward_length"), 0);
  return { count, used, feedForwardLength: h.feedForwardLength, shared };
}

/** Adds the mixture of x, and beside it the expert that every row goes through. */
export function addGraniteMixture(
  b: PlanBuilder,
  x: Value,
  experts: GraniteExperts,
  name: TensorName,
  residual: Residual,
): void {
  mixture(b, x, residual.addTo, experts, name, { scale: residual.times });
  if (experts.shared === 0) return;
  addFeedForward(b, x, experts.shared, (tensor) => name(`${tensor}_shexp`), residual);
}

/** Adds a feed-forward half of x, by SwiGLU. */
export function addFeedForward(
  b: PlanBuilder,
  x: Value,
  width: number,
  name: TensorName,
  residual: Residual,
): void {
  const ffn = glu(b, x, name("ffn_gate"), name("ffn_up"), width);
  linear(b, ffn, [{ name: name("ffn_down"), rows: residual.addTo.columns, ...residual }]);
}
