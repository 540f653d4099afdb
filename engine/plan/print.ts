import { Names } from "./op.ts";
import { kindOf } from "./ops/registry.ts";
import type { KvLayer, Plan, StateLayer } from "./plan.ts";

/** Returns a plan as text, one op per line: `out = op(operands)`. Plans with equal texts compute the same. */
export function printPlan(plan: Plan): string {
  const { kv, states } = plan;
  const head = [
    `plan ${plan.architecture}: ${plan.ops.length} ops, ${plan.buffers.length} buffers, ${plan.tensors.length} tensors`,
    `vocab ${plan.vocabSize}, context ${plan.contextLength}, kv ${
      runs(kv.layers.map(kvText))
    } in ${kv.type}` +
    (kv.windows.length > 1 ? ` in ${kv.windows.length} groups` : "") +
    `, ${plan.rope.map(({ frequencies }) => frequencies.length).join(" + ")} frequencies` +
    (states.length > 0 ? `, states ${runs(states.map(stateText))}` : ""),
  ];
  const names = new Names(plan);
  return [...head, ...plan.ops.map((op) => kindOf(op).text(op, names))].join("\n") + "\n";
}

function kvText({ heads, headDim }: KvLayer): string {
  return `${heads} x ${headDim}`;
}

function stateText({ conv, matrices }: StateLayer): string {
  if (!matrices) return `${conv.inputs} x ${conv.channels}`;
  const { heads, rows, columns } = matrices;
  return `${heads} x ${rows === columns ? `${rows}^2` : `${rows} x ${columns}`}`;
}

/** Returns the shapes as text: each run of equal layers as count x shape. */
function runs(shapes: readonly string[]): string {
  const found: { shape: string; count: number }[] = [];
  for (const shape of shapes) {
    const last = found.at(-1);
    if (last?.shape === shape) last.count++;
    else found.push({ shape, count: 1 });
  }
  return found.map(({ shape, count }) => `${count} x ${shape}`).join(" + ");
}
