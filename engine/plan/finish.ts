import type { PlanBuilder } from "./builder.ts";
import { checkBuffers } from "./check.ts";
import { DEFAULT_KV_TYPE } from "./choices.ts";
import { groupKvLayers } from "./kv_groups.ts";
import type { PlanOp } from "./ops/registry.ts";
import type { Plan } from "./plan.ts";

/** Returns the builder's plan. Throws GgufError if the file has tensors that are neither read nor left out. */
export function finishPlan(
  builder: PlanBuilder,
  head: Pick<Plan, "architecture" | "vocabSize" | "contextLength">,
): Plan {
  const { kvLayers, ...parts } = builder.collect(head.architecture);
  const ops = parts.ops as readonly PlanOp[]; // push() has checked each op's operands against its kind
  const plan: Plan = {
    ...head,
    ...parts,
    kv: { type: DEFAULT_KV_TYPE, ...groupKvLayers(kvLayers, ops) },
    ops,
  };
  checkBuffers(plan);
  return plan;
}
