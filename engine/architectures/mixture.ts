import type { ExpertHparams } from "../gguf/expert_hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { expertGlu } from "../plan/ops/expert_glu.ts";
import { expertSum } from "../plan/ops/expert_sum.ts";
import { linear } from "../plan/ops/matmul.ts";
import { route, type RouteOptions } from "../plan/ops/route.ts";
import type { Activation, Chosen } from "../plan/plan.ts";
import type { TensorName } from "./architecture.ts";

/** How experts are weighed, by default by the softmax, and the activation of their gates, by default SiLU. */
export interface MixtureOptions extends Omit<RouteOptions, "used"> {
  readonly activation?: Activation;
}

/**
 * A feed-forward half of experts: each row of x, which is normed, goes through those that its router chooses. Gates and what
 * they gate come as two tensors, or as one that has both.
 */
export function mixture(
  b: PlanBuilder,
  x: Value,
  addTo: Value,
  e: ExpertHparams,
  name: TensorName,
  { activation, ...scoring }: MixtureOptions = {},
): void {
  experts(b, x, addTo, router(b, x, e, name, scoring), e, name, activation);
}

/** The experts that rows of x choose. */
export function router(
  b: PlanBuilder,
  x: Value,
  e: ExpertHparams,
  name: TensorName,
  scoring: Omit<RouteOptions, "used"> = {},
): Chosen {
  // A choice hangs on small differences: a router in blocks reads x in two planes.
  const [logits] = linear(b, x, [{ name: name("ffn_gate_inp"), rows: e.count, fine: e.count }]);
  return route(b, logits, { used: e.used, ...scoring });
}

/** What the chosen experts make of x, added to the residual `to`, or as a new value of so many columns. */
export function experts(
  b: PlanBuilder,
  x: Value,
  to: Value | number,
  chosen: Chosen,
  e: ExpertHparams,
  name: TensorName,
  activation?: Activation,
): Value {
  const both = name("ffn_gate_up_exps");
  const fused = b.file.tensors.has(`${both}.weight`);
  const [gate, up] = fused ? [both, both] : [name("ffn_gate_exps"), name("ffn_up_exps")];
  const ffn = expertGlu(b, x, chosen, gate, up, e.feedForwardLength, activation);
  return expertSum(b, ffn, chosen, name("ffn_down_exps"), to);
}
