import type { ExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { expertActivated } from "../../plan/ops/expert_activated.ts";
import { expertGlu } from "../../plan/ops/expert_glu.ts";
import { expertSum } from "../../plan/ops/expert_sum.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { route, type RouteOptions } from "../../plan/ops/route.ts";
import type { Activation, Chosen } from "../../plan/plan.ts";
import type { TensorName } from "../architecture.ts";

/** An expert's computation; by default a gated unit with SiLU. `limit` is as in `glu`. */
export type ExpertUnit =
  | { readonly activation?: Activation; readonly limit?: number; readonly ungated?: false }
  /** An ungated expert: down(activation(up x)). */
  | { readonly activation: Exclude<Activation, "swiglu_oai">; readonly ungated: true };

/** How experts are weighed (by default by the softmax), and what an expert computes. */
export type MixtureOptions = Omit<RouteOptions, "used"> & ExpertUnit;

/**
 * Builds a feed-forward block of experts: the router chooses experts for each row of normed x. Gate and up are one
 * tensor or two. The output is added to the residual `to`, or returned as a new value of `to` columns.
 */
export function mixture(
  b: PlanBuilder,
  x: Value,
  to: Value | number,
  e: ExpertHparams,
  name: TensorName,
  options: MixtureOptions = {},
): Value {
  return experts(b, x, to, router(b, x, e, name, options), e, name, options);
}

/** Returns the experts that each row of x chooses. */
export function router(
  b: PlanBuilder,
  x: Value,
  e: ExpertHparams,
  name: TensorName,
  weighed: Omit<RouteOptions, "used"> = {},
): Chosen {
  // Small differences of logits decide the choice of experts, so a router with quantized weights reads x in two planes.
  const [logits] = linear(b, x, [{ name: name("ffn_gate_inp"), rows: e.count, fine: e.count }]);
  return route(b, logits, { ...weighed, used: e.used });
}

/**
 * Returns the chosen experts' output for x: added to the residual `to`, or as a new value of `to` columns.
 */
export function experts(
  b: PlanBuilder,
  x: Value,
  to: Value | number,
  chosen: Chosen,
  e: ExpertHparams,
  name: TensorName,
  unit: ExpertUnit = {},
): Value {
  const ffn = inner(b, x, chosen, e, name, unit);
  return expertSum(b, ffn, chosen, name("ffn_down_exps"), to);
}

function inner(
  b: PlanBuilder,
  x: Value,
  chosen: Chosen,
  e: ExpertHparams,
  name: TensorName,
  unit: ExpertUnit,
): Value {
  if (unit.ungated) {
    return expertActivated(b, x, chosen, name("ffn_up_exps"), e.feedForwardLength, unit.activation);
  }
  const both = name("ffn_gate_up_exps");
  const fused = b.file.tensors.has(`${both}.weight`);
  const [gate, up] = fused ? [both, both] : [name("ffn_gate_exps"), name("ffn_up_exps")];
  return expertGlu(b, x, chosen, gate, up, e.feedForwardLength, unit.activation, unit.limit);
}
