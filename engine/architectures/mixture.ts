import type { ExpertHparams } from "../gguf/expert_hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { expertGlu } from "../plan/ops/expert_glu.ts";
import { expertSum } from "../plan/ops/expert_sum.ts";
import { linear } from "../plan/ops/matmul.ts";
import { route, type RouteOptions } from "../plan/ops/route.ts";
import type { Activation } from "../plan/plan.ts";
import type { TensorName } from "./llama.ts";

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
  // A choice hangs on small differences: a router in blocks reads x in two planes.
  const [logits] = linear(b, x, [{ name: name("ffn_gate_inp"), rows: e.count, fine: e.count }]);
  const chosen = route(b, logits, { used: e.used, ...scoring });
  const both = name("ffn_gate_up_exps");
  const fused = b.file.tensors.has(`${both}.weight`);
  const [gate, up] = fused ? [both, both] : [name("ffn_gate_exps"), name("ffn_up_exps")];
  const ffn = expertGlu(b, x, chosen, gate, up, e.feedForwardLength, activation);
  expertSum(b, ffn, chosen, name("ffn_down_exps"), addTo);
}
