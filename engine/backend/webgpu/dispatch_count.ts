import type { Program } from "./program.ts";

/** Parts of the vocabulary, the best of all, and the draw. */
const CANDIDATES = 3;

/** Dispatches of a decoded token, by layer, and those that belong to none; of contexts that no workgroups share. */
export function countDispatches({ ops }: Program): { layers: number[]; others: number; total: number } {
  const layers: number[] = [];
  let others = 0;
  for (const { op, layer } of ops) {
    if (layer !== undefined) layers[layer] = (layers[layer] ?? 0) + 1;
    else others += op === "candidates" ? CANDIDATES : 1;
  }
  return { layers, others, total: layers.reduce((a, b) => a + b, others) };
}
