import type { Weights } from "./quantizers.ts";

/** Number of values in a block of the K formats. */
export const COLUMNS = 256;
/** Minimum weight of a value relative to its block's mean weight, so that no value's error is ignored. */
const LEAST_WEIGHT = 1e-4;

/** Values of the current block and their weights, reused to save allocations. */
export const x = new Float64Array(COLUMNS);
export const w = new Float64Array(COLUMNS).fill(1);
/** Codes of the current candidate, and the best codes so far. */
export const codes = new Uint8Array(COLUMNS);
export const bestCodes = new Uint8Array(COLUMNS);

let isPlain = true;

/** Copies `count` values and weights into `x` and `w`. Returns false for NaN or infinity. */
export function takeBlock(values: Float32Array, at: number, count: number, weights?: Weights): boolean {
  let sum = 0;
  for (let i = 0; i < count; i++) {
    x[i] = values[at + i];
    sum += Math.abs(x[i]);
  }
  if (weights) takeWeights(weights, count);
  else if (!isPlain) w.fill(1);
  isPlain = weights === undefined;
  return sum < Infinity;
}

function takeWeights({ values, at }: Weights, count: number): void {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += values[at + i];
  const mean = sum / count;
  for (let i = 0; i < count; i++) w[i] = mean > 0 ? Math.max(values[at + i] / mean, LEAST_WEIGHT) : 1;
}
