import { Names } from "./op.ts";
import { kindOf } from "./ops/registry.ts";
import type { Plan } from "./plan.ts";

/**
 * A plan as text, an op a line: `out = op(operands)`. The text names everything that the plan computes, so a change
 * that leaves it alone changed no graph.
 */
export function printPlan(plan: Plan): string {
  const { kv, recurrent } = plan;
  const head = [
    `plan ${plan.architecture}: ${plan.ops.length} ops, ${plan.buffers.length} buffers, ${plan.tensors.length} tensors`,
    `vocab ${plan.vocabSize}, context ${plan.contextLength}, kv ${kv.layers} x ${kv.heads} x ${kv.headDim} in ${kv.type}, ` +
    `${plan.frequencies.length} frequencies` +
    (recurrent.layers > 0
      ? `, states ${recurrent.layers} x ${recurrent.valueHeads} x ${recurrent.headDim}^2`
      : ""),
  ];
  const names = new Names(plan);
  return [...head, ...plan.ops.map((op) => kindOf(op).text(op, names))].join("\n") + "\n";
}
