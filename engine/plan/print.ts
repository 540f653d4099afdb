import { Names } from "./op.ts";
import { kindOf } from "./ops/registry.ts";
import type { KvLayer, Plan } from "./plan.ts";

/**
 * A plan as text, an op a line: `out = op(operands)`. The text names everything that the plan computes, so a change
 * that leaves it alone changed no graph.
 */
export function printPlan(plan: Plan): string {
  const { kv, recurrent } = plan;
  const head = [
    `plan ${plan.architecture}: ${plan.ops.length} ops, ${plan.buffers.length} buffers, ${plan.tensors.length} tensors`,
    `vocab ${plan.vocabSize}, context ${plan.contextLength}, kv ${kvText(kv.layers)} in ${kv.type}, ` +
    `${plan.rope.map((table) => table.length).join(" + ")} frequencies` +
    (recurrent.layers > 0
      ? `, states ${recurrent.layers} x ${recurrent.valueHeads} x ${recurrent.headDim}^2`
      : ""),
  ];
  const names = new Names(plan);
  return [...head, ...plan.ops.map((op) => kindOf(op).text(op, names))].join("\n") + "\n";
}

/** Layers x heads x head dimension, for each run of layers of one shape. */
function kvText(layers: readonly KvLayer[]): string {
  const runs: { shape: string; count: number }[] = [];
  for (const { heads, headDim } of layers) {
    const shape = `${heads} x ${headDim}`;
    const last = runs.at(-1);
    if (last?.shape === shape) last.count++;
    else runs.push({ shape, count: 1 });
  }
  return runs.map(({ shape, count }) => `${count} x ${shape}`).join(" + ");
}
