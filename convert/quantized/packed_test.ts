import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { Random } from "../../testing/random.ts";
import { type StoredTensor, storeFloats, TINY, type TinyCheckpoint } from "../../testing/checkpoints.ts";
import { fullTier } from "../../testing/tier.ts";
import { ConvertError } from "../errors.ts";
import { BF16, CheckpointFolder, Written } from "../testing.ts";
import { assertRobust, quantized, type QuantizedMatrix, type QuantizeMatrix, readMatrix } from "./testing.ts";

interface Style {
  readonly bits?: 4 | 8;
  /** Columns per group. */
  readonly group?: number;
  /** Whether zero points are drawn; by default each is the middle code. */
  readonly zeros?: boolean;
  /** Whether columns belong to random groups (act-order). */
  readonly order?: boolean;
  readonly scales?: "F32" | "F16" | "BF16";
}

/** Drawn codes, scales and zero points, and the values that they define. */
interface Drawn {
  readonly rows: number;
  readonly columns: number;
  readonly groups: number;
  readonly codes: Uint8Array; // [rows, columns]
  readonly scales: Float32Array; // [rows, groups]
  readonly zeros: Uint8Array; // [rows, groups]
  readonly groupOf: Int32Array; // [columns]
  readonly values: Float32Array;
}

function draw(random: Random, rows: number, columns: number, style: Style): Drawn {
  const { bits = 4, group = 64, zeros: differ, order, scales: dtype = "F16" } = style;
  const groups = columns / group;
  const codes = Uint8Array.from({ length: rows * columns }, () => random.below(1 << bits));
  // Multiples of 2^-13 below 2^-5 are exact in every type of scales.
  const unit = dtype === "F32" ? () => 0.001 + random.unit() / 100 : () => (1 + random.below(255)) / 2 ** 13;
  const scales = Float32Array.from({ length: rows * groups }, unit);
  const middle = 1 << bits - 1;
  const zeros = Uint8Array.from(scales, () => differ ? 1 + random.below(2 * middle - 2) : middle);
  const groupOf = Int32Array.from({ length: columns }, (_, i) => Math.floor(i / group));
  if (order) { for (let i = columns - 1; i > 0; i--) swap(groupOf, i, random.below(i + 1)); }
  const values = Float32Array.from(codes, (code, i) => {
    const of = Math.floor(i / columns) * groups + groupOf[i % columns];
    return (code - zeros[of]) * scales[of];
  });
  return { rows, columns, groups, codes, scales, zeros, groupOf, values };
}

function swap(values: Int32Array, a: number, b: number): void {
  [values[a], values[b]] = [values[b], values[a]];
}

/** Packs each line of numbers [lines, length] into words, from the low bits of each word on. */
function pack(
  bits: number,
  lines: number,
  length: number,
  at: (line: number, i: number) => number,
): StoredTensor {
  const per = 32 / bits;
  const words = new Uint32Array(lines * Math.ceil(length / per));
  const width = words.length / lines;
  for (let line = 0; line < lines; line++) {
    for (let i = 0; i < length; i++) {
      words[line * width + Math.floor(i / per)] |= at(line, i) << i % per * bits;
    }
  }
  return { dtype: "I32", shape: [lines, width], bytes: new Uint8Array(words.buffer) };
}

/** Returns the transposed tensor of words. */
function turn({ shape: [lines, width], bytes }: StoredTensor): StoredTensor {
  const from = new Uint32Array(bytes.buffer);
  const to = Uint32Array.from(from, (_, i) => from[i % lines * width + Math.floor(i / lines)]);
  return { dtype: "I32", shape: [width, lines], bytes: new Uint8Array(to.buffer) };
}

const integers = (values: Int32Array): StoredTensor => {
  return { dtype: "I32", shape: [values.length], bytes: new Uint8Array(values.slice().buffer) };
};

const turnedScales = ({ scales, groups, rows }: Drawn, dtype: "F32" | "F16" | "BF16") =>
  storeFloats(dtype, [groups, rows], scales.map((_, i) => scales[i % rows * groups + Math.floor(i / rows)]));

function gptq(style: Style, format: "gptq" | "gptq_v2" = "gptq"): QuantizeMatrix {
  return (random, rows, columns) => {
    const { bits = 4, scales: dtype = "F16" } = style;
    const drawn = draw(random, rows, columns, style);
    const { groups, codes, zeros, groupOf, values } = drawn;
    const stored = (zero: number) => format === "gptq" ? zero - 1 : zero;
    const parts = {
      qweight: turn(pack(bits, rows, columns, (row, i) => codes[row * columns + i])),
      qzeros: pack(bits, groups, rows, (of, row) => stored(zeros[row * groups + of])),
      scales: turnedScales(drawn, dtype),
      g_idx: integers(groupOf),
    };
    return { parts, values };
  };
}

/** For each position in a word, the row of eight whose code it holds. Source: AutoAWQ. */
const AWQ_ROWS = [0, 2, 4, 6, 1, 3, 5, 7];

const awq: QuantizeMatrix = (random, rows, columns) => {
  const drawn = draw(random, rows, columns, { zeros: true });
  const { groups, codes, zeros, values } = drawn;
  const row = (i: number) => (i & ~7) + AWQ_ROWS[i & 7];
  const parts = {
    qweight: pack(4, columns, rows, (column, i) => codes[row(i) * columns + column]),
    qzeros: pack(4, groups, rows, (of, i) => zeros[row(i) * groups + of]),
    scales: turnedScales(drawn, "F16"),
  };
  return { parts, values };
};

function packed(style: Style): QuantizeMatrix {
  return (random, rows, columns) => {
    const { bits = 4, scales: dtype = "BF16", zeros: differ, order } = style;
    const { groups, codes, scales, zeros, groupOf, values } = draw(random, rows, columns, {
      ...style,
      scales: dtype,
    });
    const shape = new BigInt64Array([BigInt(rows), BigInt(columns)]);
    const parts = {
      weight_packed: pack(bits, rows, columns, (row, i) => codes[row * columns + i]),
      weight_scale: storeFloats(dtype, [rows, groups], scales),
      weight_shape: { dtype: "I64", shape: [2], bytes: new Uint8Array(shape.buffer) } as const,
      ...differ &&
        { weight_zero_point: turn(pack(bits, groups, rows, (of, row) => zeros[row * groups + of])) },
      ...order && { weight_g_idx: integers(groupOf) },
    };
    return { parts, values };
  };
}

const GPTQ = { quant_method: "gptq", bits: 4, group_size: 64, desc_act: true, checkpoint_format: "gptq" };
const AWQ = { quant_method: "awq", bits: 4, group_size: 64, version: "gemm", zero_point: true };
const COMPRESSED = { quant_method: "compressed-tensors", format: "pack-quantized" };

const KINDS: Record<string, [quantize: QuantizeMatrix, settings: object, kind: string]> = {
  "GPTQ's 4 bits without zero points": [gptq({}), GPTQ, "GPTQ 4 bits F32 Q4_0"],
  "GPTQ's 8 bits without zero points": [gptq({ bits: 8 }), { ...GPTQ, bits: 8 }, "GPTQ 8 bits F32 Q8_0"],
  "GPTQ's zero points": [gptq({ zeros: true }), GPTQ, "GPTQ 4 bits F32"],
  "GPTQ's zero points of version 2": [
    gptq({ zeros: true }, "gptq_v2"),
    { ...GPTQ, checkpoint_format: "gptq_v2" },
    "GPTQ 4 bits F32",
  ],
  "GPTQ's act-order": [gptq({ order: true }), GPTQ, "GPTQ 4 bits F32"],
  "GPTQ's groups smaller than a block": [gptq({ group: 16 }), GPTQ, "GPTQ 4 bits F32"],
  "GPTQ's scales that f16 cannot hold": [gptq({ scales: "F32" }), GPTQ, "GPTQ 4 bits F32"],
  "AWQ's zero points": [awq, AWQ, "AWQ 4 bits F32"],
  "compressed-tensors' int4": [packed({ group: 32 }), COMPRESSED, "compressed-tensors int4 F32 Q4_0"],
  "compressed-tensors' int4 with a scale per row": [
    packed({ group: 192 }),
    COMPRESSED,
    "compressed-tensors int4 F32 Q4_0",
  ],
  "compressed-tensors' int8": [packed({ bits: 8 }), COMPRESSED, "compressed-tensors int8 F32 Q8_0"],
  "compressed-tensors' zero points": [packed({ zeros: true }), COMPRESSED, "compressed-tensors int4 F32"],
  "compressed-tensors' act-order": [
    packed({ zeros: true, order: true }),
    COMPRESSED,
    "compressed-tensors int4 F32",
  ],
};
for (const [what, [quantize, settings, kind]] of Object.entries(KINDS)) {
  Deno.test(`packed integers: converts ${what} without changing values`, async () => {
    const { parts, values } = quantize(new Random(1), 40, 192, "m");
    const found = await readMatrix(parts, settings);
    assertEquals([found.kind, found.shape], [kind, [40, 192]]);
    assertEquals(found.values, values);
    if (found.exact) assertEquals(found.exact, values);
  });
}

for (const [what, settings, quantize] of [["GPTQ", GPTQ, gptq({})], ["AWQ", AWQ, awq]] as const) {
  fullTier.test(`packed integers: a ${what} model keeps its values when its rows are reordered`, async () => {
    const files: Written[] = [];
    for (const plain of [true, false]) {
      const change = (checkpoint: TinyCheckpoint) => {
        quantized(quantize, settings, plain)(checkpoint);
        const bias = storeFloats("F16", [TINY.feedForward], new Float32Array(TINY.feedForward));
        if (!plain) checkpoint.tensors.set("model.layers.0.mlp.up_proj.bias", bias);
      };
      await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, change);
      const { refusal, leftOut } = await folder.convert();
      assertEquals([refusal, leftOut], [undefined, plain ? {} : { "biases of 0": 1 }]);
      files.push(await Written.read(folder.out));
    }
    for (const { name, type } of files[0].gguf.tensors.values()) {
      assertEquals(files[1].values(name), files[0].values(name), name);
      const isQ4 = what === "GPTQ" && /blk.*(attn|ffn)_(q|k|v|output|gate|up|down)\.weight/.test(name);
      assertEquals(files[1].gguf.tensors.get(name)!.type, isQ4 ? "Q4_0" : type);
    }
  });
}

type Change = (matrix: QuantizedMatrix) => Record<string, StoredTensor | undefined>;
const BAD: Record<string, [settings: object, words: string, quantize: QuantizeMatrix, change?: Change]> = {
  "GPTQ's 3 bits": [{ ...GPTQ, bits: 3 }, `"quantization_config.bits": must be 4 or 8 (got 3)`, gptq({})],
  "GPTQ weights in Marlin's order": [{ ...GPTQ, checkpoint_format: "marlin" }, `(got "marlin")`, gptq({})],
  "AWQ's version for GEMV": [
    { ...AWQ, version: "gemv" },
    `"quantization_config.version": must be "gemm"`,
    awq,
  ],
  "AWQ's 8 bits": [{ ...AWQ, bits: 8 }, `"quantization_config.bits": must be 4 (got 8)`, awq],
  "packed weights without a method": [{}, `tensor "m.qweight": config.json must name`, awq],
  "GPTQ without scales": [
    GPTQ,
    `tensor "m.qweight": needs a tensor "scales" beside it`,
    gptq({}),
    () => ({ scales: undefined }),
  ],
  "GPTQ's largest zero point": [
    GPTQ,
    `tensor "m.qzeros": must have zero points below 15, because programs read 15 differently`,
    gptq({}),
    ({ parts: { qzeros } }) => ({ qzeros: { ...qzeros, bytes: qzeros.bytes.slice().fill(255, 3, 4) } }),
  ],
  "a group beyond the last one": [
    GPTQ,
    `tensor "m.g_idx": must have groups from 0 to 2 (got 3)`,
    gptq({}),
    () => ({ g_idx: integers(Int32Array.from({ length: 192 }, () => 3)) }),
  ],
  "groups of another length": [
    GPTQ,
    `tensor "m.g_idx": must have shape 192 (got 7)`,
    gptq({}),
    () => ({ g_idx: integers(new Int32Array(7)) }),
  ],
  "scales of another shape": [
    GPTQ,
    `tensor "m.scales": must have shape groups x 40 (got 40 x 3)`,
    gptq({}),
    ({ parts: { scales } }) => ({ scales: { ...scales, shape: [40, 3] } }),
  ],
  "scales that are NaN": [
    GPTQ,
    `tensor "m.scales": must have finite scales`,
    gptq({}),
    ({ parts: { scales } }) => ({ scales: { ...scales, bytes: scales.bytes.slice().fill(255, 0, 2) } }),
  ],
  "compressed-tensors in Marlin's order": [
    { ...COMPRESSED, format: "marlin-24" },
    `key "quantization_config.format": must be dense, float-quantized`,
    packed({}),
  ],
  "a group in another format": [
    { ...COMPRESSED, config_groups: { group_0: { format: "sparse-24-bitmask" } } },
    `key "quantization_config.config_groups.group_0.format"`,
    packed({}),
  ],
  "transforms at run time": [
    { ...COMPRESSED, transform_config: { config_groups: { R1: {} } } },
    `key "quantization_config.transform_config": must be absent`,
    packed({}),
  ],
  "a stated shape with another number of rows": [
    COMPRESSED,
    `tensor "m.weight_shape": must hold 40 rows and at most 2097152 columns (got 41 x 192)`,
    packed({}),
    () => ({ weight_shape: integers(Int32Array.of(41, 192)) }),
  ],
  "a stated shape that means 5 bits per column": [
    COMPRESSED,
    `tensor "m.weight_packed": must have 4 or 8 bits per column`,
    packed({}),
    () => ({ weight_shape: integers(Int32Array.of(40, 153)) }),
  ],
  "columns that do not divide into groups": [
    COMPRESSED,
    `tensor "m.weight_packed": must have columns that divide into groups (got 192 columns and 5 groups)`,
    packed({}),
    () => ({ weight_scale: storeFloats("BF16", [40, 5], new Float32Array(200)) }),
  ],
};
for (const [what, [settings, words, quantize, change]] of Object.entries(BAD)) {
  Deno.test(`packed integers: rejects ${what}`, async () => {
    const matrix = quantize(new Random(1), 40, 192, "m");
    const parts = Object.entries({ ...matrix.parts, ...change?.(matrix) });
    const present = Object.fromEntries(
      parts.filter((entry): entry is [string, StoredTensor] => entry[1] !== undefined),
    );
    const { message } = await assertRejects(() => readMatrix(present, settings), ConvertError);
    assertStringIncludes(message, words);
  });
}

Deno.test("packed integers: randomly changed tensors give values or a ConvertError", async () => {
  const kinds = [[gptq({ order: true }), GPTQ], [awq, AWQ], [packed({ zeros: true }), COMPRESSED]] as const;
  for (const [quantize, settings] of kinds) {
    await assertRobust(quantize(new Random(1), 40, 192, "m").parts, settings, 60);
  }
});
