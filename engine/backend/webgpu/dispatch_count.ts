import { gpuKindOf } from "./ops/registry.ts";
import type { Program } from "./program.ts";

/**
 * Counts the dispatches of a decoded token by layer, and those outside layers. Contexts are not split among
 * workgroups.
 */
export function countDispatches({ ops }: Program): { layers: number[]; others: number; total: number } {
  const layers: number[] = [];
  let others = 0;
  for (const op of ops) {
    const count = gpuKindOf(op)?.count ?? 1;
    if (op.layer !== undefined) layers[op.layer] = (layers[op.layer] ?? 0) + count;
    else others += count;
  }
  const all = Array.from(layers, (count) => count ?? 0); // a layer may have nothing to compute
  return { layers: all, others, total: all.reduce((a, b) => a + b, others) };
}
