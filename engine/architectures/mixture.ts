import type { ExpertHparams } from "../gguf/expert_hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { expertSum } from "../plan/ops/expert_sum.ts";
import { expertGlu } from "../plan/ops/expert_glu.ts";
import { linear } from "../plan/ops/matmul.ts";
import { route, type RouteOptions } from "../plan/ops/route.ts";
import type { TensorName } from "./llama.ts";

/**
 * A feed-forward half of experts: each row of x, which is normed, goes through those that its router chooses; `scoring` says how
 * they are weighed, by default by the softmax.
 */
export function mixture(
  b: PlanBuilder,
  x: Value,
  addTo: Value,
  e: ExpertHparams,
  name: TensorName,
  scoring: Omit<RouteOptions, "used"> = {},
): void {
  // A choice hangs on small differences: a router in blocks reads x in two planes.
  const [logits] = linear(b, x, [{ name: name("ffn_gate_inp"), rows: e.count, fine: e.count }]);
  const chosen = route(b, logits, { used: e.used, ...scoring });
  const gates = [name("ffn_gate_exps"), name("ffn_up_exps")] as const;
  const ffn = expertGlu(b, x, chosen, ...gates, e.feedForwardLength);
  expertSum(b, ffn, chosen, name("ffn_down_exps"), addTo);
}
