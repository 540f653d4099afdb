import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { Random } from "../../testing/random.ts";
import { type StoredTensor, storeFloats, TINY, type TinyCheckpoint } from "../../testing/checkpoints.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { ConvertError } from "../errors.ts";
import { BF16, CheckpointFolder, MXFP4, Written } from "../testing.ts";
import { assertRobust, quantized, type QuantizedMatrix, type QuantizeMatrix, readMatrix } from "./testing.ts";

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const signed = (code: number) => code & 8 ? -E2M1[code & 7] : E2M1[code];
const e4m3 = (code: number) => code < 8 ? code / 512 : (8 + (code & 7)) * 2 ** ((code >> 3) - 10);

type Style = "ModelOpt" | "ModelOpt without a factor" | "compressed-tensors" | "compressed-tensors MXFP4";

/** Returns a function that draws an NVFP4 or MXFP4 matrix in the given program's format. */
function fp4(style: Style): QuantizeMatrix {
  return (random, rows, columns): QuantizedMatrix => {
    const group = style.endsWith("MXFP4") ? 32 : 16;
    const bytes = Uint8Array.from({ length: rows * columns / 2 }, () => random.below(256));
    const scales = Uint8Array.from({ length: rows * columns / group }, () => 1 + random.below(126));
    const factor = style === "ModelOpt without a factor" ? 1 : Math.fround(0.0003 + random.unit() / 1000);
    const codes: StoredTensor = { dtype: "U8", shape: [rows, columns / 2], bytes };
    const shape = [rows, columns / group];
    const value = (i: number) => {
      const [code, scale] = [signed(bytes[i >> 1] >> 4 * (i & 1) & 15), scales[Math.floor(i / group)]];
      if (style === "compressed-tensors MXFP4") return code * 2 ** (scale - 127);
      return style === "compressed-tensors" ? code * e4m3(scale) / factor : code * e4m3(scale) * factor;
    };
    const values = Float32Array.from({ length: rows * columns }, (_, i) => value(i));
    const of = (dtype: "F8_E4M3" | "U8"): StoredTensor => ({ dtype, shape, bytes: scales });
    const one = storeFloats("F32", style === "ModelOpt" ? [] : [1], Float32Array.of(factor));
    switch (style) {
      case "ModelOpt":
        return {
          parts: { weight: codes, weight_scale: of("F8_E4M3"), weight_scale_2: one, input_scale: one },
          values,
        };
      case "ModelOpt without a factor":
        return { parts: { weight: codes, weight_scale: of("F8_E4M3") }, values };
      case "compressed-tensors":
        return {
          parts: { weight_packed: codes, weight_scale: of("F8_E4M3"), weight_global_scale: one },
          values,
        };
      case "compressed-tensors MXFP4":
        return { parts: { weight_packed: codes, weight_scale: of("U8") }, values };
    }
  };
}

const MODEL_OPT = { quant_method: "modelopt", quant_algo: "NVFP4" };
const COMPRESSED = { quant_method: "compressed-tensors", format: "nvfp4-pack-quantized" };
const KINDS: [style: Style, settings: object, kind: string][] = [
  ["ModelOpt", MODEL_OPT, "ModelOpt NVFP4 F32 NVFP4"],
  ["ModelOpt without a factor", MODEL_OPT, "ModelOpt NVFP4 F32 NVFP4"],
  ["compressed-tensors", COMPRESSED, "compressed-tensors NVFP4 F32 NVFP4"],
  ["compressed-tensors MXFP4", COMPRESSED, "compressed-tensors MXFP4 F32 MXFP4"],
];
for (const [style, settings, kind] of KINDS) {
  Deno.test(`4-bit floats: ${style} keeps every value`, async () => {
    for (const columns of [192, 160]) {
      const { parts, values } = fp4(style)(new Random(1), 24, columns, "m");
      const found = await readMatrix(parts, settings);
      assertEquals(found.values, values);
      // 160 columns do not divide into blocks of NVFP4, which have 64.
      assertEquals(found.kind, columns === 160 ? kind.replace(/ NVFP4$/, "") : kind);
      if (!found.exact) continue;
      const factor = found.factor ?? 1;
      const error = found.exact.reduce(
        (most, value, i) => Math.max(most, Math.abs(value * factor / values[i] - 1) || 0),
        0,
      );
      assert(error <= (style === "compressed-tensors" ? 2 ** -22 : 2 ** -23), `${error}`);
    }
  });
}

Deno.test("4-bit floats: a converted model keeps its NVFP4 bits and stores the matrices' factors", async () => {
  const files: Written[] = [];
  for (const plain of [true, false]) {
    const change = quantized(fp4("ModelOpt"), MODEL_OPT, plain);
    await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, change);
    const { refusal, leftOut } = await folder.convert();
    assertEquals([refusal, leftOut], [undefined, {}]);
    files.push(await Written.read(folder.out));
  }
  const [plain, found] = files;
  for (const name of plain.gguf.tensors.keys()) {
    const scale = name.replace(/weight$/, "scale");
    const isMatrix = /^blk\.\d+\.(attn_[qkv]|attn_output|ffn_gate|ffn_up|ffn_down)\.weight$/.test(name);
    assertEquals([found.gguf.tensors.get(name)!.type === "NVFP4", found.gguf.tensors.has(scale)], [
      isMatrix,
      isMatrix,
    ]);
    const factor = isMatrix ? found.values(scale)[0] : 1;
    assertEquals(found.values(name).map((value) => value * factor), plain.values(name), name);
  }
});

fullTier.test("4-bit floats: MLX's NVFP4 keeps its bits", async () => {
  const module = "language_model.model.layers.1.mlp.gate_proj";
  const change = ({ config, tensors }: TinyCheckpoint) => {
    (config.quantization as Record<string, unknown>)[module] = { group_size: 16, bits: 4, mode: "nvfp4" };
    const [rows, columns] = [TINY.feedForward, TINY.hidden];
    const { parts: { weight, weight_scale } } = fp4("ModelOpt")(new Random(3), rows, columns, module);
    tensors.set(`${module}.weight`, { ...weight, dtype: "U32", shape: [rows, columns / 8] });
    tensors.set(`${module}.scales`, { ...weight_scale, dtype: "U8" });
  };
  await using folder = await CheckpointFolder.make(MXFP4, change);
  assertEquals((await folder.convert()).refusal, undefined);
  const written = await Written.read(folder.out);
  const { parts, values } = fp4("ModelOpt")(new Random(3), TINY.feedForward, TINY.hidden, module);
  const factor = new Float32Array(parts.weight_scale_2.bytes.buffer)[0];
  assertEquals(written.gguf.tensors.get("blk.1.ffn_gate.weight")!.type, "NVFP4");
  assertEquals(written.values("blk.1.ffn_gate.weight").map((value) => value * factor), values);
  assert(!written.gguf.tensors.has("blk.1.ffn_gate.scale"));
});

type Change = (parts: QuantizedMatrix["parts"]) => Record<string, StoredTensor>;
const SCALE = 'tensor "m.weight_scale';
const BAD: Record<string, [style: Style, change: Change, words: string]> = {
  "a scale that is NaN": [
    "ModelOpt",
    ({ weight_scale: scale }) => ({ weight_scale: { ...scale, bytes: scale.bytes.slice().fill(127, 5, 6) } }),
    `${SCALE}": must have positive finite E4M3 scales (got code 127)`,
  ],
  "a negative scale": [
    "compressed-tensors",
    ({ weight_scale: scale }) => ({ weight_scale: { ...scale, bytes: scale.bytes.slice().fill(200, 5, 6) } }),
    `${SCALE}": must have positive finite E4M3 scales (got code 200)`,
  ],
  "scales of another type": [
    "ModelOpt",
    ({ weight_scale: { shape, bytes } }) => ({ weight_scale: { dtype: "U8", shape, bytes } }),
    `${SCALE}": must have dtype F8_E4M3 (got U8)`,
  ],
  "scales of another shape": [
    "ModelOpt",
    ({ weight_scale: scale }) => ({ weight_scale: { ...scale, shape: [12, 24] } }),
    `${SCALE}": must have shape rows x columns / 16 for the weight's shape 24 x 96 (got 12 x 24)`,
  ],
  "no columns": [
    "ModelOpt",
    () => ({
      weight: { dtype: "U8", shape: [24, 0], bytes: new Uint8Array() },
      weight_scale: { dtype: "F8_E4M3", shape: [24, 0], bytes: new Uint8Array() },
    }),
    `tensor "m.weight": must have at least one column (got none)`,
  ],
  "a factor of 0": [
    "ModelOpt",
    () => ({ weight_scale_2: storeFloats("F32", [], Float32Array.of(0)) }),
    `${SCALE}_2": must be a factor from 2^-100 to 2^100 (got 0)`,
  ],
  "several factors": [
    "ModelOpt",
    () => ({ weight_scale_2: storeFloats("F32", [2], Float32Array.of(1, 2)) }),
    `${SCALE}_2": must have shape 1, a single value (got 2)`,
  ],
  "an exponent that is NaN": [
    "compressed-tensors MXFP4",
    ({ weight_scale: scale }) => ({ weight_scale: { ...scale, bytes: scale.bytes.slice().fill(255, 5, 6) } }),
    `${SCALE}": must have scales below 255 (got 255, E8M0's NaN)`,
  ],
};
for (const [what, [style, change, words]] of Object.entries(BAD)) {
  Deno.test(`4-bit floats: rejects ${what}`, async () => {
    const { parts } = fp4(style)(new Random(1), 24, 192, "m");
    const settings = style === "ModelOpt" ? MODEL_OPT : COMPRESSED;
    const { message } = await assertRejects(
      () => readMatrix({ ...parts, ...change(parts) }, settings),
      ConvertError,
    );
    assertStringIncludes(message, words);
  });
}

Deno.test("4-bit floats: randomly changed tensors give values or a ConvertError", async () => {
  for (const [style, settings] of KINDS) {
    await assertRobust(fp4(style)(new Random(1), 24, 192, "m").parts, settings, isFullTier ? 60 : 20);
  }
});
