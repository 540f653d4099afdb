import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import type { TensorType } from "../../../gguf/types.ts";
import { fullTier } from "../../../../testing/tier.ts";
import { GPU_TYPES } from "./formats/registry.ts";
import { defaultTuning, embedKernel, matMulKernels, neededFor } from "./matmul.ts";
import { embed, multiply, openTestDevice, type Product } from "./testing.ts";
import { dequantize } from "../../../../testing/synth/weights.ts";
import {
  adversarial,
  COLUMNS,
  GATES,
  known,
  matrix,
  nmse,
  normal,
  product,
  productErrors,
  ROWS,
  spec,
} from "./testing_products.ts";
import { type Arithmetic, ARITHMETICS } from "../../backend.ts";
import type { MatMulSpec, Tuning } from "./types.ts";

const gpu = await openTestDevice();
const test = (name: string, fn: () => Promise<void>) =>
  fullTier.test({ name, ignore: !gpu, sanitizeResources: false, sanitizeOps: false, fn });

async function assertGates(of: MatMulSpec, kernel: number, x: Float32Array, tuning?: Tuning): Promise<void> {
  const errors = await productErrors(gpu!, of, kernel, x, tuning);
  for (const [t, error] of errors.entries()) {
    const name = `${of.type} ${of.arithmetic}, kernel ${kernel}, row ${t} of ${errors.length}`;
    assert(error <= GATES[of.arithmetic], `${name}: NMSE ${error}`);
  }
}

for (const type of GPU_TYPES) {
  test(`product of ${type}: one row keeps the accuracy gates for adversarial activations`, async () => {
    for (const arithmetic of ARITHMETICS) await assertGates(spec(type, arithmetic), 0, adversarial(6));
  });

  test(`embedding of ${type}: gives the file's values`, async () => {
    const { bytes, exact } = known(type);
    const tokens = [69, 0, 3];
    const weights = { type, weights: bytes, rows: ROWS, columns: COLUMNS };
    const found = await embed(gpu!, embedKernel(type, COLUMNS), weights, tokens);
    tokens.forEach((token, t) => {
      for (let k = 0; k < COLUMNS; k++) {
        assertAlmostEquals(found[t * COLUMNS + k], exact[token * COLUMNS + k], 1e-7);
      }
    });
  });
}

/** Whether to test all kernels. A software driver takes most of a second per kernel, so they take minutes. */
const ALL = Deno.env.has("COMPY_ALL_KERNELS");
const HARDEST: readonly Arithmetic[] = ALL ? ARITHMETICS : ["f16"];
/** Types to test, one per kind of decoder: one scale, mins, two scales, both, a table, floats. */
const SHAPES: readonly TensorType[] = ALL ? GPU_TYPES : ["Q4_0", "Q4_K", "Q6_K", "Q2_K", "MXFP4", "F16"];

for (const type of SHAPES) {
  test(`product of ${type}: several rows keep the accuracy gates for adversarial activations`, async () => {
    const arithmetics = type === "Q4_0" ? ARITHMETICS : HARDEST;
    for (const arithmetic of arithmetics) await assertGates(spec(type, arithmetic), 1, adversarial(6));
  });

  test(`product of ${type}: many rows keep the accuracy gates`, async () => {
    for (const kernel of [2, 3]) {
      for (const arithmetic of HARDEST) await assertGates(spec(type, arithmetic), kernel, adversarial(37));
    }
  });
}

for (const arithmetic of ARITHMETICS) {
  test(`product in ${arithmetic}: a row has the same bits for any number of rows and any tuning`, async () => {
    const { bytes } = known("Q4_0");
    const of = spec("Q4_0", arithmetic);
    const [one, few, several, tiles] = matMulKernels(of, gpu!.kernels);
    const [tuned] = matMulKernels(of, gpu!.kernels, { rows: 4, lanes: 64 });
    const p = { type: of.type, weights: bytes, rows: ROWS, columns: COLUMNS };
    const x = adversarial(35);
    const together = await multiply(gpu!, tiles, of, { ...p, x, m: 35 });
    for (const kernel of [few, several]) {
      assertEquals(await multiply(gpu!, kernel, of, { ...p, x, m: 35 }), together);
    }
    for (const [t, kernel] of [[0, one], [3, tuned], [34, one]] as const) {
      const row = x.subarray(t * COLUMNS, (t + 1) * COLUMNS);
      const alone = await multiply(gpu!, kernel, of, { ...p, x: row, m: 1 });
      assertEquals(alone, together.subarray(t * ROWS, (t + 1) * ROWS));
    }
  });
}

for (const type of ["Q4_K", "Q6_K"] as const) {
  test(`product of ${type}: elements shared by neighbouring lanes give the bits of lanes that load alone`, async () => {
    // In the last round some strands have no pair, and some blocks share Q6_K's factors with no other block.
    const columns = 5 * 256;
    const of = spec(type, "f32", { columns });
    const p = { type, weights: matrix(type, ROWS, columns), rows: ROWS, columns };
    const x = normal(33 * columns, "x");
    const [one, few, , tiles] = matMulKernels(of, gpu!.kernels, { rows: 2, lanes: 64 });
    const together = await multiply(gpu!, tiles, of, { ...p, x, m: 33 });
    for (const [kernel, m] of [[one, 1], [few, 3]] as const) {
      const found = await multiply(gpu!, kernel, of, { ...p, x: x.subarray(0, m * columns), m });
      assertEquals(found, together.subarray(0, m * ROWS));
    }
  });
}

for (const [kernel, m] of [[0, 1], [1, 5], [2, 33], [3, 33]]) {
  test(`product epilogues: bias, residual and SwiGLU are correct for ${m} rows`, async () => {
    const { bytes, exact } = known("Q4_0");
    const x = normal(m * COLUMNS, "x");
    const p: Product = { type: "Q4_0", weights: bytes, rows: ROWS, columns: COLUMNS, x, m };
    const [gate, up] = [product(exact, p), product(exact, p, ROWS)];
    const bias = normal(ROWS, "bias");
    const y = normal(m * ROWS, "y");
    const run = (rest: Partial<MatMulSpec>, more: Partial<Product> = {}) => {
      const of = spec("Q4_0", "f32", rest);
      return multiply(gpu!, matMulKernels(of, gpu!.kernels)[kernel], of, { ...p, ...more });
    };
    const near = (found: Float32Array, right: (i: number) => number) => {
      const exact = Float64Array.from(found, (_, i) => right(i));
      assert(nmse(found, exact) < 1e-11, `NMSE ${nmse(found, exact)}`);
    };
    near(await run({ bias: true }, { bias }), (i) => gate[i] + bias[i % ROWS]);
    near(await run({ epilogue: "add" }, { y }), (i) => gate[i] + y[i]);
    near(await run({ epilogue: "swiglu" }), (i) => gate[i] / (1 + Math.exp(-gate[i])) * up[i]);
  });
}

test("product of F16: with f16 arithmetic, products of weights of any magnitude pass the accuracy gates", async () => {
  const scales = [1, 9e3, 1e-4, 300, 0];
  const values = Float16Array.from(
    normal(ROWS * COLUMNS, "large"),
    (w, i) => w * scales[Math.floor(i / COLUMNS) % 5],
  );
  const bytes = new Uint8Array(values.buffer);
  const of = spec("F16", "f16");
  for (const [kernel, m] of [[0, 1], [1, 3]]) {
    const p = {
      type: "F16" as const,
      weights: bytes,
      rows: ROWS,
      columns: COLUMNS,
      x: normal(m * COLUMNS, "x"),
      m,
    };
    const found = await multiply(gpu!, matMulKernels(of, gpu!.kernels)[kernel], of, p);
    const right = product(Float64Array.from(values), p);
    for (const k of scales.keys()) {
      const mine = Array.from({ length: m * ROWS }, (_, i) => i).filter((i) => i % ROWS % 5 === k);
      const error = nmse(Float32Array.from(mine, (i) => found[i]), Float64Array.from(mine, (i) => right[i]));
      assert(error <= GATES.f16, `scale ${scales[k]}: NMSE ${error}`);
    }
  }
});

test("product: ignores values beyond columns that are not a multiple of 32", async () => {
  const columns = 100;
  const bytes = matrix("F16", ROWS, columns);
  const p = { type: "F16" as const, weights: bytes, rows: ROWS, columns, x: normal(columns, "x"), m: 1 };
  const exact = product(dequantize("F16", bytes, ROWS * columns), p);
  for (const arithmetic of ARITHMETICS) {
    const of = spec("F16", arithmetic, { columns });
    const found = await multiply(gpu!, matMulKernels(of, gpu!.kernels)[0], of, p);
    assert(nmse(found, exact) <= GATES[arithmetic], arithmetic);
  }
});

test("product of MXFP4: scales kept for a strand's next pair are correct for rows of any length", async () => {
  // Two rounds of strands and part of a third; and rows that end within a pair.
  for (const columns of [32 * 43, 32 * 33]) {
    const bytes = matrix("MXFP4", ROWS, columns);
    const exact = dequantize("MXFP4", bytes, ROWS * columns);
    const of = spec("MXFP4", "f32", { columns });
    for (const [kernel, m] of [[0, 1], [1, 3], [3, 33]]) {
      const p = {
        type: "MXFP4" as const,
        weights: bytes,
        rows: ROWS,
        columns,
        x: normal(m * columns, "x"),
        m,
      };
      const found = await multiply(gpu!, matMulKernels(of, gpu!.kernels)[kernel], of, p);
      assert(nmse(found, product(exact, p)) <= GATES.f32, `${columns} columns, kernel ${kernel}`);
    }
  }
});

Deno.test("product kernels: only those a step may need are compiled; tall matrices and thin formats take two rows", () => {
  const kernels = matMulKernels(spec("Q4_0", "f32"), { f16: false });
  assertEquals([1, 3, 4, 16, 17, 64, 65, 512].map((rows) => neededFor(kernels, rows).length), [
    1,
    2,
    2,
    3,
    3,
    3,
    4,
    4,
  ]);
  const rowsOf = (rows: number, type: TensorType, rest: Partial<MatMulSpec> = {}) =>
    defaultTuning(rows, spec(type, "f32", rest)).rows;
  assertEquals([2560, 151_936].map((rows) => rowsOf(rows, "Q4_0")), [1, 2]);
  assertEquals([rowsOf(2560, "Q3_K"), rowsOf(2560, "Q3_K", { epilogue: "swiglu" })], [2, 1]);
});

Deno.test("product kernels: refuse an arithmetic that the device lacks", () => {
  const make = () => matMulKernels(spec("Q4_0", "f16"), { f16: false });
  assertThrows(make, Error, `arithmetic "f16": the device has no working 16-bit floats`);
});
