import type { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import type { ExpertHparams } from "../gguf/expert_hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { glu } from "../plan/ops/glu.ts";
import { linear } from "../plan/ops/matmul.ts";
import type { TensorName } from "./architecture.ts";
import type { Residual } from "./mamba_hybrid.ts";
import { mixture, type MixtureOptions } from "./mixture.ts";

/** Experts that rows choose, and beside them some that every row goes through. */
export interface SharedExperts extends ExpertHparams {
  /** Width of those that every row goes through, side by side as one; 0 where there are none. */
  readonly shared: number;
}

/** Of those that every row goes through. */
export const MAX_SHARED_WIDTH = 1_048_576;

/** The width of as many as the file counts, each of that width. */
export function countedWidth(keys: ArchitectureKeys, each: number): number {
  const name = "expert_shared_count";
  const count = keys.metadata.getCount(keys.name(name));
  const most = Math.floor(MAX_SHARED_WIDTH / each);
  if (count > most) keys.refuse(name, String(count), `0 to ${most}`);
  return count * each;
}

/** Adds what the chosen experts make of x, and those that every row goes through. */
export function addSharedMixture(
  b: PlanBuilder,
  x: Value,
  experts: SharedExperts,
  name: TensorName,
  residual: Residual,
  options: MixtureOptions,
): void {
  mixture(b, x, residual.addTo, experts, name, options);
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
