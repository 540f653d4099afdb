import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { concat } from "@std/bytes/concat.js";
import { Random } from "../../testing/random.ts";
import { type StoredTensor, storeFloats } from "../../testing/checkpoints.ts";
import { fullTier } from "../../testing/tier.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { SafeTensor } from "../checkpoint/tensors.ts";
import { ConvertError } from "../errors.ts";
import { BF16, CheckpointFolder } from "../testing.ts";
import { computedFloats } from "./computed.ts";
import { readNumbers } from "./numbers.ts";
import { assertRobust, quantized, type QuantizedMatrix, type QuantizeMatrix, readMatrix } from "./testing.ts";

/** Returns the value of an E4M3 code other than 127 and 255, which are NaN. */
function e4m3(code: number): number {
  const [exponent, mantissa] = [code >> 3 & 15, code & 7];
  const magnitude = exponent === 0 ? mantissa / 512 : (8 + mantissa) * 2 ** (exponent - 10);
  return code < 128 ? magnitude : -magnitude;
}

const int8 = (code: number) => code < 128 ? code : code - 256;

interface Style {
  readonly dtype?: "F8_E4M3" | "I8";
  readonly suffix?: string;
  readonly scales?: "F32" | "BF16" | "F16";
  /** Rows and columns per scale; by default one scale for the matrix. */
  readonly block?: readonly [rows: number, columns: number];
  /** Shape of the tensor that holds the matrix's only scale. */
  readonly single?: readonly number[];
  readonly scale?: (random: Random) => number;
}

/** Returns a function that draws codes and scales. It computes the values in float64 and rounds them to f32. */
function draw({ dtype = "F8_E4M3", suffix = "weight_scale", scales = "F32", block, single, scale }: Style) {
  return (random: Random, rows: number, columns: number): QuantizedMatrix => {
    const [height, width] = (block ?? [rows, columns]).map((size, i) => Math.min(size, [rows, columns][i]));
    const grid = [Math.ceil(rows / height), Math.ceil(columns / width)];
    const drawn = Float32Array.from(
      { length: grid[0] * grid[1] },
      () => scale?.(random) ?? 0.0005 + 0.001 * random.unit(),
    );
    const stored = storeFloats(scales, single ?? grid, drawn);
    const factors = scales === "F32" ? drawn : widened(scales, stored.bytes);
    const codes = Uint8Array.from({ length: rows * columns }, () => random.below(256));
    if (dtype !== "I8") codes.forEach((code, i) => codes[i] = (code & 127) === 127 ? 0 : code);
    const value = dtype === "I8" ? int8 : e4m3;
    const values = Float32Array.from(codes, (code, i) => {
      const [row, column] = [Math.floor(i / columns / height), Math.floor(i % columns / width)];
      return value(code) * factors[row * grid[1] + column];
    });
    const weight: StoredTensor = { dtype, shape: [rows, columns], bytes: codes };
    return {
      parts: { weight, [suffix]: stored, input_scale: storeFloats("F32", [], Float32Array.of(1)) },
      values,
    };
  };
}

function widened(dtype: "BF16" | "F16", bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.slice().buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => {
    if (dtype === "F16") return view.getFloat16(2 * i, true);
    const word = new DataView(new ArrayBuffer(4));
    word.setUint16(0, view.getUint16(2 * i, true));
    return word.getFloat32(0);
  });
}

const compressed = (weights: object) => ({
  quant_method: "compressed-tensors",
  format: "float-quantized",
  config_groups: { group_0: { targets: ["Linear"], weights } },
});
const deepseek = { quant_method: "fp8", weight_block_size: [48, 80] };
const inverse = { suffix: "weight_scale_inv", block: [48, 80] } as const;
const POWERS = (random: Random) => 2 ** -(8 + random.below(3));

const KINDS: Record<string, [style: Style, settings: unknown, source: string]> = {
  // Neither 128 nor 256, the tiny model's widths, is a multiple of 48 or 80.
  "DeepSeek's blocks": [inverse, deepseek, "FP8_E4M3 F32"],
  "blocks with powers of two": [{ ...inverse, scale: POWERS }, deepseek, "FP8_E4M3 BF16"],
  "one scale per tensor": [{ single: [] }, { quant_method: "modelopt", quant_algo: "FP8" }, "FP8_E4M3 F32"],
  "one scale in an array": [
    { single: [1], scales: "F16" },
    compressed({ strategy: "tensor" }),
    "FP8_E4M3 F32",
  ],
  "a scale per row": [
    { block: [1, 1e9], scales: "BF16" },
    compressed({ strategy: "channel" }),
    "FP8_E4M3 F32",
  ],
  "compressed-tensors' blocks": [
    { block: [32, 64], scales: "BF16" },
    compressed({ strategy: "block", block_structure: [32, 64] }),
    "FP8_E4M3 F32",
  ],
  "int8 with a scale per row": [
    { dtype: "I8", block: [1, 1e9], scales: "BF16" },
    compressed({ strategy: "channel", num_bits: 8, type: "int" }),
    "int8 F32 Q8_0",
  ],
  "int8 in groups with scales that f16 cannot hold": [
    { dtype: "I8", block: [1, 64] },
    compressed({ strategy: "group", group_size: 64 }),
    "int8 F32",
  ],
};
for (const [what, [style, settings, kind]] of Object.entries(KINDS)) {
  Deno.test(`quantized: converts ${what} without changing values`, async () => {
    // 100 rows and 160 columns are not multiples of every block size.
    const { parts, values } = draw(style)(new Random(1), 100, 160);
    const found = await readMatrix(parts, settings);
    assertEquals(found.kind, kind);
    assertEquals(found.values, values);
    if (found.exact) assertEquals(found.exact, values);
  });
}

Deno.test("quantized: MXFP8 has an exponent per 32 columns", async () => {
  const [rows, columns] = [6, 96];
  const random = new Random(4);
  const powers = Float32Array.from({ length: rows * columns / 32 }, () => random.below(9) - 12);
  let next = 0;
  const drawn = draw({ block: [1, 32], scale: () => 2 ** powers[next++] })(random, rows, columns);
  const bytes = Uint8Array.from(powers, (power) => power + 127);
  const parts = {
    ...drawn.parts,
    weight_scale: { dtype: "U8", shape: [rows, columns / 32], bytes } as const,
  };
  const found = await readMatrix(parts, compressed({ strategy: "group", group_size: 32 }));
  assertEquals([found.kind, found.values], ["FP8_E4M3 BF16", drawn.values]);
});

Deno.test("quantized: reads FP8 experts in one tensor with scales per expert, row or block", async () => {
  const [experts, rows, columns] = [3, 50, 96];
  const random = new Random(2);
  for (const block of [undefined, [1, 1e9], [48, 80]] as const) {
    const each = Array.from({ length: experts }, () => draw({ ...inverse, block })(random, rows, columns));
    const join = (suffix: string): StoredTensor => {
      const { dtype, shape } = each[0].parts[suffix];
      return {
        dtype,
        shape: [experts, ...shape],
        bytes: concat(each.map(({ parts }) => parts[suffix].bytes)),
      };
    };
    const parts = { weight: join("weight"), weight_scale_inv: join("weight_scale_inv") };
    const { values } = await readMatrix(parts, deepseek);
    assertEquals(values, Float32Array.from(each.flatMap(({ values }) => [...values])));
  }
});

for (const to of [undefined, "q4_0"] as const) {
  fullTier.test(`quantized: a model with FP8 weights becomes the same ${to ?? "float"} file as one with their float values`, async () => {
    const files: Uint8Array[] = [];
    for (const plain of [true, false]) {
      const change = quantized(draw(inverse), deepseek, plain);
      await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, change);
      const { leftOut } = await folder.convert({ quantize: to });
      assertEquals(leftOut, {});
      files.push(await Deno.readFile(folder.out));
    }
    assertEquals(files[0], files[1]);
  });
}

type Change = (matrix: QuantizedMatrix) => Record<string, StoredTensor>;

const UP = `tensor "m.weight`;
const scale = (value: number): Change => ({ parts }) => {
  const values = new Float32Array(parts.weight_scale_inv.bytes.length / 4).fill(0.01);
  values[3] = value;
  return { weight_scale_inv: storeFloats("F32", parts.weight_scale_inv.shape, values) };
};
const BAD: Record<string, [change: Change, settings: unknown, words: string]> = {
  "a negative scale": [
    scale(-1),
    deepseek,
    `${UP}_scale_inv": must have finite scales of at least 0 (got -1)`,
  ],
  "a scale that is NaN": [
    scale(NaN),
    deepseek,
    `${UP}_scale_inv": must have finite scales of at least 0 (got NaN)`,
  ],
  "a product beyond f32": [scale(3e38), deepseek, `${UP}": its products with the scales are not finite`],
  "a code that is NaN": [
    ({ parts: { weight } }) => ({ weight: { ...weight, bytes: weight.bytes.slice().fill(255, 9, 10) } }),
    deepseek,
    `${UP}": its products with the scales are not finite`,
  ],
  "scales in another shape": [
    () => ({ weight_scale_inv: storeFloats("F32", [2, 3], new Float32Array(6)) }),
    deepseek,
    `${UP}_scale_inv": must have shape 1, or 3 x 2, or 100, for the weight's shape 100 x 160 (got 2 x 3)`,
  ],
  "one scale per column": [
    ({ parts: { weight } }) => ({
      weight: { ...weight, shape: [80, 200] },
      weight_scale_inv: storeFloats("F32", [1, 80], new Float32Array(80)),
    }),
    deepseek,
    `${UP}_scale_inv": must have shape 1, or 2 x 3, or 80, for the weight's shape 80 x 200 (got 1 x 80)`,
  ],
  "a weight without columns": [
    () => ({
      weight: { dtype: "F8_E4M3", shape: [100, 0], bytes: new Uint8Array() },
      weight_scale_inv: storeFloats("F32", [], Float32Array.of(1)),
    }),
    deepseek,
    `${UP}": must have shape rows x columns or matrices x rows x columns, each at least 1 (got 100 x 0)`,
  ],
  "scales of an integer type": [
    ({ parts: { weight_scale_inv: { shape, bytes } } }) => ({
      weight_scale_inv: { dtype: "I32", shape, bytes },
    }),
    deepseek,
    `${UP}_scale_inv": must have dtype F32, F16, BF16, F8_E4M3 or F8_E8M0 (got I32)`,
  ],
  "no block size": [() => ({}), { quant_method: "fp8" }, `.weight_scale_inv": must have shape 1, or`],
  "a block size of 0": [
    () => ({}),
    { quant_method: "fp8", weight_block_size: [0, 128] },
    `key "quantization_config.weight_block_size": must be two whole numbers from 1 to 1048576`,
  ],
  "another method": [
    () => ({}),
    { quant_method: "bitsandbytes" },
    `key "quantization_config.quant_method": must be`,
  ],
};
for (const [what, [change, settings, words]] of Object.entries(BAD)) {
  Deno.test(`quantized: rejects ${what}`, async () => {
    const matrix = draw(inverse)(new Random(1), 100, 160);
    const parts = { ...matrix.parts, ...change(matrix) };
    const { message } = await assertRejects(() => readMatrix(parts, settings), ConvertError);
    assertStringIncludes(message, words);
  });
}

Deno.test("quantized: randomly changed tensors give values or a ConvertError", async () => {
  for (const style of [inverse, { dtype: "I8", block: [1, 1e9] }] as const) {
    await assertRobust(draw(style)(new Random(1), 100, 160).parts, deepseek, 60);
  }
});

Deno.test("quantized: rejects FP8 weights without scales", async () => {
  const bare: QuantizeMatrix = (random, rows, columns) => {
    const { parts: { weight }, values } = draw(inverse)(random, rows, columns);
    return { parts: { weight }, values };
  };
  const change = quantized(bare, deepseek, false);
  await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, change);
  const { message } = await assertRejects(() => folder.convert(), ConvertError);
  assertStringIncludes(message, "(got F8_E4M3)");
});

Deno.test("computed tensors: return any range of bytes, across tiles and in any order", () => {
  const read = (tensor: SafeTensor, at: number, into: Uint8Array) => tensor.compute!(at, into);
  const checkpoint = { read } as unknown as Checkpoint;
  const about = { name: "m", file: "f", shape: [300, 100], format: "test", tileBytes: 3333 };
  const fill = (scale: number) => (start: number, out: Float32Array) =>
    out.forEach((_, i) => out[i] = scale * (start * 100 + i));
  const [one, two] = [1, 2].map((scale) => computedFloats(checkpoint, about, "F32", fill(scale)));
  const random = new Random(3);
  for (let i = 0; i < 40; i++) {
    const start = random.below(29_000);
    const length = 1 + random.below(i === 0 ? 20_000 : 1000);
    const count = Math.min(length, 30_000 - start);
    for (const [tensor, scale] of [[one, 1], [two, 2]] as const) {
      const found = readNumbers(checkpoint, tensor, start, count);
      assertEquals([found[0], found.at(-1)], [scale * start, scale * (start + count - 1)]);
    }
  }
});
