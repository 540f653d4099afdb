import { assert } from "@std/assert";
import { Random, seedOf } from "../../../../tests/random.ts";
import { weights } from "../../../../tests/synth.ts";
import { FORMATS } from "../../../gguf/formats.ts";
import type { TensorType } from "../../../gguf/types.ts";
import { matMulKernels } from "./matmul.ts";
import { multiply, openTestDevice, type Product } from "./testing.ts";
import { dequantize } from "./testing_dequantize.ts";
import type { Arithmetic, MatMulSpec } from "./types.ts";

const TYPES = Object.keys(FORMATS) as TensorType[];
const gpu = await openTestDevice();
const test = (name: string, fn: () => Promise<void>) =>
  Deno.test({ name, ignore: !gpu, sanitizeResources: false, sanitizeOps: false, fn });

/** Mean squared error over mean square of the exact product. */
const GATES: Readonly<Record<Arithmetic, number>> = { f32: 1e-11, "f16-activations": 1e-6, f16: 2e-6 };

const ROWS = 70;
const COLUMNS = 768;

function matrix(type: TensorType, rows = ROWS, columns = COLUMNS): Uint8Array {
  const data = weights(type, rows * columns, new Random(seedOf(`${type} kernels`)));
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

const matrices = new Map<TensorType, { bytes: Uint8Array; exact: Float64Array }>();
function known(type: TensorType) {
  const made = matrices.get(type) ?? (() => {
    const bytes = matrix(type, 2 * ROWS);
    return { bytes, exact: dequantize(type, bytes, 2 * ROWS * COLUMNS) };
  })();
  matrices.set(type, made);
  return made;
}

function normal(count: number, seed: string): Float32Array {
  const random = new Random(seedOf(seed));
  return Float32Array.from({ length: count }, () => random.normal());
}

/** x W in float64: [m, rows]. */
function product(exact: Float64Array, { x, m, rows, columns }: Product, first = 0): Float64Array {
  return Float64Array.from({ length: m * rows }, (_, i) => {
    const [t, r] = [Math.floor(i / rows), i % rows + first];
    let sum = 0;
    for (let k = 0; k < columns; k++) sum += exact[r * columns + k] * x[t * columns + k];
    return sum;
  });
}

function nmse(found: Float32Array, exact: Float64Array): number {
  let [error, energy] = [0, 0];
  for (let i = 0; i < exact.length; i++) {
    error += (found[i] - exact[i]) ** 2;
    energy += exact[i] ** 2;
  }
  return error / energy;
}

function spec(type: TensorType, arithmetic: Arithmetic, rest: Partial<MatMulSpec> = {}): MatMulSpec {
  return { type, arithmetic, columns: COLUMNS, epilogue: "store", bias: false, ...rest };
}

/** Rows of activations that meet the three kernels of a spec. */
const KERNEL_ROWS = [1, 5, 33];

async function errorOf(of: MatMulSpec, kernel: number): Promise<number> {
  const { bytes, exact } = known(of.type);
  const m = KERNEL_ROWS[kernel];
  const p = { type: of.type, weights: bytes, rows: ROWS, columns: COLUMNS, x: normal(m * COLUMNS, "x"), m };
  const found = await multiply(gpu!, matMulKernels(of, gpu!.kernels)[kernel], of, p);
  return nmse(found, product(exact, p));
}

for (const type of TYPES) {
  test(`${type}: one row of activations keeps the gates`, async () => {
    for (const arithmetic of ["f32", "f16"] as const) {
      const error = await errorOf(spec(type, arithmetic), 0);
      assert(error <= GATES[arithmetic], `${type} ${arithmetic}: NMSE ${error}`);
    }
  });
}
