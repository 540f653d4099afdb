import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { Random, seedOf } from "../../../../tests/random.ts";
import { weights } from "../../../../tests/synth.ts";
import { FORMATS } from "../../../gguf/formats.ts";
import type { TensorType } from "../../../gguf/types.ts";
import { embedKernel, matMulKernels } from "./matmul.ts";
import { embed, multiply, openTestDevice, type Product } from "./testing.ts";
import { dequantize } from "./testing_dequantize.ts";
import { type Arithmetic, ARITHMETICS, type MatMulSpec, type Tuning } from "./types.ts";

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

function normal(count: number, seed: string): Float32Array<ArrayBuffer> {
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

/** Activations that break careless half arithmetic, a row each: large, small, one outlier, nothing. */
function adversarial(m: number): Float32Array<ArrayBuffer> {
  const x = normal(m * COLUMNS, "x");
  const scales = [1, 9e3, 4e5, 1e-5, 1, 0];
  for (let t = 0; t < m; t++) {
    const row = x.subarray(t * COLUMNS, (t + 1) * COLUMNS);
    row.forEach((v, k) => row[k] = v * scales[t % scales.length]);
    if (t % scales.length === 4) row.fill(1).fill(1e4, 37, 38);
  }
  return x;
}

async function assertGates(of: MatMulSpec, kernel: number, x: Float32Array, tuning?: Tuning): Promise<void> {
  const { bytes, exact } = known(of.type);
  const m = x.length / of.columns;
  const p: Product = { type: of.type, weights: bytes, rows: ROWS, columns: of.columns, x, m };
  const found = await multiply(gpu!, matMulKernels(of, gpu!.kernels, tuning)[kernel], of, p);
  const right = product(exact, p);
  for (let t = 0; t < m; t++) {
    const row = [t * ROWS, (t + 1) * ROWS] as const;
    const name = `${of.type} ${of.arithmetic}, kernel ${kernel}, row ${t} of ${m}`;
    if (right.subarray(...row).every((v) => v === 0)) {
      assert(found.subarray(...row).every((v) => v === 0), `${name}: not 0`);
    } else {
      const error = nmse(found.subarray(...row), right.subarray(...row));
      assert(error <= GATES[of.arithmetic], `${name}: NMSE ${error}`);
    }
  }
}

for (const type of TYPES) {
  test(`${type}: one row of activations keeps the gates`, async () => {
    for (const arithmetic of ["f32", "f16"] as const) {
      await assertGates(spec(type, arithmetic), 0, adversarial(1));
    }
  });

  test(`${type}: the embedding gives the file's values`, async () => {
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

/** A software driver takes most of a second to compile a kernel: all of them are a campaign of minutes. */
const ALL = Deno.env.has("COMPY_ALL_KERNELS");
const HARDEST: readonly Arithmetic[] = ALL ? ARITHMETICS : ["f16"];
/** A type for each shape of decoder: by one scale, with mins, with two scales, both, by look-up, floats. */
const SHAPES: readonly TensorType[] = ALL ? TYPES : ["Q4_0", "Q4_K", "Q6_K", "Q2_K", "MXFP4", "F16"];

for (const type of SHAPES) {
  test(`${type}: no activation overflows, vanishes or leaves the gates`, async () => {
    const arithmetics = type === "Q4_0" ? ARITHMETICS : HARDEST;
    for (const arithmetic of arithmetics) await assertGates(spec(type, arithmetic), 1, adversarial(6));
  });

  test(`${type}: many rows keep the gates`, async () => {
    for (const arithmetic of HARDEST) await assertGates(spec(type, arithmetic), 2, adversarial(37));
  });
}

test("rows are added up by a workgroup where there are no subgroups", async () => {
  const tuning: Tuning = { rows: 2, subgroups: 1, reduce: "workgroup" };
  await assertGates(spec("Q4_0", "f16"), 0, adversarial(1), tuning);
});

test("a row's product has the same bits alone and among others", async () => {
  const { bytes } = known("Q4_0");
  const of = spec("Q4_0", "f16");
  const [one, several] = matMulKernels(of, gpu!.kernels);
  const p = { type: of.type, weights: bytes, rows: ROWS, columns: COLUMNS };
  const x = adversarial(5);
  const together = await multiply(gpu!, several, of, { ...p, x, m: 5 });
  for (const t of [0, 3]) {
    const alone = await multiply(gpu!, one, of, {
      ...p,
      x: x.subarray(t * COLUMNS, (t + 1) * COLUMNS),
      m: 1,
    });
    assertEquals(alone, together.subarray(t * ROWS, (t + 1) * ROWS));
  }
});

for (const [kernel, m] of [[0, 1], [1, 5], [2, 33]]) {
  test(`epilogues for ${m} rows: bias, residual, SwiGLU`, async () => {
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

test("columns that are no multiple of 32: what stands beyond them does not count", async () => {
  const columns = 100;
  const bytes = matrix("F16", ROWS, columns);
  const p = { type: "F16" as const, weights: bytes, rows: ROWS, columns, x: normal(columns, "x"), m: 1 };
  const of = spec("F16", "f16-activations", { columns });
  const found = await multiply(gpu!, matMulKernels(of, gpu!.kernels)[0], of, p);
  assert(nmse(found, product(dequantize("F16", bytes, ROWS * columns), p)) <= GATES["f16-activations"]);
});

Deno.test("f16 arithmetic on a device without it is refused by name", () => {
  const device = { f16: false, subgroups: false, subgroupSize: 0 };
  assertThrows(() => matMulKernels(spec("Q4_0", "f16"), device), Error, `arithmetic "f16"`);
});
