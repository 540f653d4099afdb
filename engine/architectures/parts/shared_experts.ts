import type { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import type { ExpertHparams } from "../../gguf/expert_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { gate } from "../../plan/ops/gate.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import type { RouteOptions } from "../../plan/ops/route.ts";
import type { TensorName } from "../architecture.ts";
import type { Residual } from "./mamba_hybrid.ts";
import { mixture, type MixtureOptions } from "./mixture.ts";

/** Experts that rows choose, and beside them some that every row goes through. */
export interface SharedExperts extends ExpertHparams {
  /** Width of those that every row goes through, side by side as one; 0 where there are none. */
  readonly shared: number;
  /** Gate and up of those are one tensor, which is called as up is. */
  readonly sharedFused?: boolean;
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

/** The width that the file says they have together; where it has their number alone, each is as wide as the others. */
export function statedWidth(keys: ArchitectureKeys, each: number): number {
  const length = "expert_shared_feed_forward_length";
  const count = keys.metadata.getCount(keys.name("expert_shared_count"), 0);
  const shared = keys.metadata.getCount(keys.name(length), count * each);
  if (shared > MAX_SHARED_WIDTH) keys.refuse(length, String(shared), `0 to ${MAX_SHARED_WIDTH}`);
  return shared;
}

/** How the file says that the chosen experts are weighed. */
export function readWeighed(keys: ArchitectureKeys): Pick<RouteOptions, "divided" | "scale"> {
  return {
    divided: keys.metadata.getBoolean(keys.name("expert_weights_norm"), false),
    scale: keys.scale("expert_weights_scale", 1),
  };
}

/** What a layer's choice adds to the scores, where the file has it. */
export function biasOfChoice(b: PlanBuilder, name: TensorName): string | undefined {
  const bias = name("exp_probs_b.bias");
  return b.file.tensors.has(bias) ? bias : undefined;
}

/**
 * What the chosen experts make of x, and those that every row goes through: added to a residual, or a new value of so many columns.
 */
export function sharedMixture(
  b: PlanBuilder,
  x: Value,
  experts: SharedExperts,
  name: TensorName,
  to: Residual | number,
  options: MixtureOptions,
): Value {
  const made = mixture(b, x, typeof to === "number" ? to : to.addTo, experts, name, options);
  if (experts.shared === 0) return made;
  const residual = typeof to === "number" ? { addTo: made } : to;
  const called = (tensor: string) =>
    name(experts.sharedFused && tensor === "ffn_gate" ? "ffn_up_shexp" : `${tensor}_shexp`);
  return feedForward(b, x, experts.shared, called, residual);
}

/** Adds what the expert that all rows go through makes of x, times the sigmoid of a product with each row. */
export function gatedSharedExpert(
  b: PlanBuilder,
  x: Value,
  addTo: Value,
  width: number,
  name: TensorName,
): void {
  const result = feedForward(b, x, width, (tensor) => name(`${tensor}_shexp`), addTo.columns);
  const [weight] = linear(b, x, [{ name: name("ffn_gate_inp_shexp"), rows: 1 }]);
  gate(b, weight, result, { activation: "sigmoid", addTo });
}

/** A feed-forward half of x by SwiGLU: added to a residual, or a new value of so many columns. */
export function feedForward(
  b: PlanBuilder,
  x: Value,
  width: number,
  name: TensorName,
  to: Residual | number,
): Value {
  const ffn = glu(b, x, name("ffn_gate"), name("ffn_up"), width);
  const out = typeof to === "number" ? { rows: to } : { rows: to.addTo.columns, ...to };
  return linear(b, ffn, [{ name: name("ffn_down"), ...out }])[0];
}
