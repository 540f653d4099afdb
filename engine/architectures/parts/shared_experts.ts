import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { ExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { gate } from "../../plan/ops/gate.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import type { RouteOptions } from "../../plan/ops/route.ts";
import type { Activation } from "../../plan/plan.ts";
import type { TensorName } from "../architecture.ts";
import type { Residual } from "./mamba_hybrid.ts";
import { mixture, type MixtureOptions } from "./mixture.ts";

/** A gated unit: its activation, by default SiLU, and its bound as in `glu`, by default none. */
export interface GatedUnit {
  readonly activation?: Activation;
  readonly limit?: number;
}

/** Chosen experts, and shared experts that process every row. */
export interface SharedExperts extends ExpertHparams {
  /** Width of all shared experts together, as one wide expert; 0: none. */
  readonly shared: number;
  /** Whether gate and up of the shared experts are one tensor, named like up. */
  readonly sharedFused?: boolean;
  /** The shared experts' gated unit; by default SwiGLU without a bound. */
  readonly sharedUnit?: GatedUnit;
}

/** Maximum width of the shared experts together. */
const MAX_SHARED_WIDTH = 1_048_576;

/** Returns the width of the shared experts together: their count in the file times `each`. */
export function countedWidth(keys: ArchitectureKeys, each: number): number {
  const name = "expert_shared_count";
  const count = keys.metadata.getCount(keys.name(name));
  const most = Math.floor(MAX_SHARED_WIDTH / each);
  if (count > most) keys.refuse(name, String(count), `0 to ${most}`);
  return count * each;
}

/** Returns the shared experts' width in the file. If the file only has their count, returns the count times `each`. */
export function statedWidth(keys: ArchitectureKeys, each: number): number {
  const length = "expert_shared_feed_forward_length";
  const count = keys.metadata.getCount(keys.name("expert_shared_count"), 0);
  const shared = keys.metadata.getCount(keys.name(length), count * each);
  if (shared > MAX_SHARED_WIDTH) keys.refuse(length, String(shared), `0 to ${MAX_SHARED_WIDTH}`);
  return shared;
}

/** Reads from the file how chosen experts are weighed. */
export function readWeighed(keys: ArchitectureKeys): Pick<RouteOptions, "divided" | "scale"> {
  return {
    divided: keys.metadata.getBoolean(keys.name("expert_weights_norm"), false),
    scale: keys.scale("expert_weights_scale", 1),
  };
}

/** Returns the tensor that biases a layer's choice of experts; undefined if the file has none. */
export function biasOfChoice(b: PlanBuilder, name: TensorName): string | undefined {
  return [name("exp_probs_b.bias"), name("exp_probs_b")].find((bias) => b.file.tensors.has(bias));
}

/**
 * Returns the chosen and shared experts' output for x: added to a residual, or as a new value of `to`
 * columns.
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
  return feedForward(b, x, experts.shared, called, residual, experts.sharedUnit);
}

/** Adds the shared expert's output for x, times a sigmoid gate computed from each row. */
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

/** Returns the output of a gated feed-forward block for x: added to a residual, or as a new value of `to` columns. */
export function feedForward(
  b: PlanBuilder,
  x: Value,
  width: number,
  name: TensorName,
  to: Residual | number,
  { activation, limit }: GatedUnit = {},
): Value {
  const ffn = glu(b, x, name("ffn_gate"), name("ffn_up"), width, activation, limit);
  const out = typeof to === "number" ? { rows: to } : { rows: to.addTo.columns, ...to };
  return linear(b, ffn, [{ name: name("ffn_down"), ...out }])[0];
}
