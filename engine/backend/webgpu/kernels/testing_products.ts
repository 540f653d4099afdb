/** Compares GPU products of every weight format with exact products, for activations that are difficult in f16. */
import { Random, seedOf } from "../../../../testing/random.ts";
import { weights } from "../../../../testing/synth/synth.ts";
import type { TensorType } from "../../../gguf/types.ts";
import { multiply, type Product, type TestDevice } from "./testing.ts";
import { matMulKernels } from "./matmul.ts";
import { dequantize } from "../../../../testing/synth/weights.ts";
import type { Arithmetic } from "../../backend.ts";
import type { MatMulSpec, Tuning } from "./types.ts";

/** Largest allowed error of a product: mean squared error over the mean square of the exact product. */
export const GATES: Readonly<Record<Arithmetic, number>> = {
  f32: 1e-11,
  f16: 2e-6,
};

export const ROWS = 70;
export const COLUMNS = 768;

export function matrix(type: TensorType, rows = ROWS, columns = COLUMNS): Uint8Array {
  const data = weights(type, rows * columns, new Random(seedOf(`${type} kernels`)));
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

const matrices = new Map<TensorType, { bytes: Uint8Array; exact: Float64Array }>();

/** Returns a test matrix of 2 x ROWS rows in a format, and its exact values. */
export function known(type: TensorType): { bytes: Uint8Array; exact: Float64Array } {
  const made = matrices.get(type) ?? (() => {
    const bytes = matrix(type, 2 * ROWS);
    return { bytes, exact: dequantize(type, bytes, 2 * ROWS * COLUMNS) };
  })();
  matrices.set(type, made);
  return made;
}

export function normal(count: number, seed: string): Float32Array<ArrayBuffer> {
  const random = new Random(seedOf(seed));
  return Float32Array.from({ length: count }, () => random.normal());
}

/**
 * Returns activations that break careless f16 arithmetic, one kind per row: plain, large, larger, small, one
 * outlier, all zeros.
 */
export function adversarial(m: number): Float32Array<ArrayBuffer> {
  const x = normal(m * COLUMNS, "x");
  const scales = [1, 9e3, 4e5, 1e-5, 1, 0];
  for (let t = 0; t < m; t++) {
    const row = x.subarray(t * COLUMNS, (t + 1) * COLUMNS);
    row.forEach((v, k) => row[k] = v * scales[t % scales.length]);
    if (t % scales.length === 4) row.fill(1).fill(1e4, 37, 38);
  }
  return x;
}

/** Returns the product x W in float64: [m, rows]. */
export function product(exact: Float64Array, { x, m, rows, columns }: Product, first = 0): Float64Array {
  return Float64Array.from({ length: m * rows }, (_, i) => {
    const [t, r] = [Math.floor(i / rows), i % rows + first];
    let sum = 0;
    for (let k = 0; k < columns; k++) sum += exact[r * columns + k] * x[t * columns + k];
    return sum;
  });
}

/** Returns the mean squared error over the mean square of the exact values; 0 if both are all zeros. */
export function nmse(found: Float32Array, exact: Float64Array): number {
  let [error, energy] = [0, 0];
  for (let i = 0; i < exact.length; i++) {
    error += (found[i] - exact[i]) ** 2;
    energy += exact[i] ** 2;
  }
  return error === 0 ? 0 : error / energy;
}

export function spec(type: TensorType, arithmetic: Arithmetic, rest: Partial<MatMulSpec> = {}): MatMulSpec {
  return { type, arithmetic, columns: COLUMNS, epilogue: "store", bias: false, ...rest };
}

/** Returns the error of each row of activations in a kernel's product with a format's known matrix. */
export async function productErrors(
  gpu: TestDevice,
  of: MatMulSpec,
  kernel: number,
  x: Float32Array,
  tuning?: Tuning,
): Promise<number[]> {
  const { bytes, exact } = known(of.type);
  const m = x.length / of.columns;
  const p: Product = { type: of.type, weights: bytes, rows: ROWS, columns: of.columns, x, m };
  const found = await multiply(gpu, matMulKernels(of, gpu.kernels, tuning)[kernel], of, p);
  const right = product(exact, p);
  return Array.from({ length: m }, (_, t) => {
    const row = [t * ROWS, (t + 1) * ROWS] as const;
    return nmse(found.subarray(...row), right.subarray(...row));
  });
}
