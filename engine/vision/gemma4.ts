/** Gemma 4's vision tower. Source: Hugging Face transformers, models/gemma4. */
import { isReadAsFloats, readAsFloats } from "../gguf/float_tensor.ts";
import { requireTensor } from "../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { clamp } from "../plan/ops/clamp.ts";
import { gate } from "../plan/ops/gate.ts";
import { glu } from "../plan/ops/glu.ts";
import { linear } from "../plan/ops/matmul.ts";
import { average } from "../plan/ops/merge.ts";
import { postNorm } from "../plan/ops/post_norm.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import { ropeTable } from "../plan/ops/rope_table.ts";
import { rotate } from "../plan/ops/rotate.ts";
import { textAttention } from "../plan/ops/text_attention.ts";
import type { TowerKind, TowerShape } from "./kind.ts";

/** Maximum tokens of an image. Images are scaled up or down to about this number of tokens. */
export const TOKENS = 280;
const ROPE_BASE = 100;
/** Indices of a place's axes: row and column in an image. */
const [ROW, COLUMN] = [1, 2];
/** Name of the product that standardizes pooled rows. Its weights come from the file's biases and scales. */
const STANDARD = "v.standard";

export const GEMMA4: TowerKind = {
  merged: ["projector.scale_factor", 3],
  centres: true,
  scaling: (_, factor) => ({ to: "fill", most: TOKENS * factor ** 2 }),
  frames: 1,
  positions: "by axis",
  norm: rmsNorm,
  layers,
  prepare,
  project(b, x, { eps, merged, width, projection }) {
    const soft = average(b, x, merged ** 2);
    const standard = b.file.tensors.has(`${STANDARD}.weight`);
    const rows = standard ? linear(b, soft, [{ name: STANDARD, rows: width }])[0] : soft;
    // Without biases, the factor sqrt(width) of pooled rows changes only the norm's epsilon.
    const normed = rmsNorm(b, rows, undefined, standard ? eps : eps / width);
    return clipped(b, normed, [{ name: "mm.input_projection", rows: projection }])[0];
  },
  text: {
    mark: "<|image|>",
    // An image's rows use this token's per-layer embeddings.
    row: "<pad>",
    together: true,
    parts: ({ rows, columns }) => ["<|image>", rows * columns, "<image|>"],
  },
};

function layers(b: PlanBuilder, { width, heads, feedForward, eps }: TowerShape) {
  const headDim = width / heads;
  const half = headDim / 2;
  const frequencies = Float64Array.from({ length: half / 2 }, (_, i) => ROPE_BASE ** (-i / (half / 2)));
  const [columns, rows] = [COLUMN, ROW].map((axis) =>
    ropeTable(b, { frequencies, axes: new Uint8Array(half / 2).fill(axis), magnitude: 1 })
  );
  return (x: Value, prefix: string): void => {
    const name = (tensor: string) => `${prefix}.${tensor}`;
    const parts = ["attn_q", "attn_k", "attn_v"].map((part) => ({ name: name(part), rows: width }));
    const [q, k, v] = clipped(b, rmsNorm(b, x, name("ln1"), eps), parts)
      .map((value) => ({ value, column: 0 }));
    for (const [part, norm] of [[q, "attn_q_norm"], [k, "attn_k_norm"]] as const) {
      rotate(b, part, heads, headDim, { table: columns, rotated: half, norm: name(norm), eps });
      rotate(b, { ...part, column: half, step: headDim }, heads, half, { table: rows, rotated: half });
    }
    rotate(b, v, heads, headDim, { rotated: 0, unweighted: true, eps });
    const out = { heads, kvHeads: heads, headDim, reader: name("attn_out") };
    const [attn] = clipped(b, textAttention(b, [q, k, v], out, 1), [{ name: name("attn_out"), rows: width }]);
    postNorm(b, attn, name("attn_post_norm"), eps, x);
    const hidden = hiddenRows(b, rmsNorm(b, x, name("ln2"), eps), name, feedForward);
    const [ffn] = clipped(b, hidden, [{ name: name("ffn_down"), rows: width }]);
    postNorm(b, ffn, name("ffn_post_norm"), eps, x);
  };
}

function hiddenRows(b: PlanBuilder, x: Value, name: (tensor: string) => string, rows: number): Value {
  const [open, up] = [name("ffn_gate"), name("ffn_up")];
  if (!isClipped(b, open) && !isClipped(b, up)) return glu(b, x, open, up, rows, "gelu");
  const [inner, factor] = clipped(b, x, [{ name: open, rows }, { name: up, rows }]);
  return gate(b, inner, factor, { activation: "gelu" });
}

/** Returns products of x with matrices. Each product's input and result are clamped to bounds, if the file has any. */
function clipped(b: PlanBuilder, x: Value, parts: readonly { name: string; rows: number }[]): Value[] {
  if (!parts.some(({ name }) => isClipped(b, name))) return linear(b, x, parts);
  const within = (value: Value, name: string) => clamp(b, value, `${name}_min`, `${name}_max`);
  return parts.map((part) => {
    const [product] = linear(b, within(x, `${part.name}.input`), [part]);
    return within(product, `${part.name}.output`);
  });
}

function isClipped({ file }: PlanBuilder, name: string): boolean {
  return ["input_min", "input_max", "output_min", "output_max"].some((bound) =>
    file.tensors.has(`${name}.${bound}`)
  );
}

/**
 * Returns the file with tensors of a product, a diagonal matrix and a bias, that standardizes pooled rows to
 * (sqrt(width) x - bias) * scale. Returns the file unchanged if its tower does not standardize rows. Throws GgufError.
 */
function prepare(file: GgufFile, { width }: TowerShape): GgufFile {
  const names = ["v.std_bias", "v.std_scale"];
  if (!names.every((name) => file.tensors.has(name))) return file;
  const infos = names.map((name) => requireTensor(file, name, [width]));
  if (!infos.every(({ type }) => isReadAsFloats(type))) return file;
  const tensors = new Map(file.tensors);
  for (const name of names) tensors.delete(name);
  const add = (
    name: string,
    shape: number[],
    make: (bias: Float32Array, scale: Float32Array) => Float32Array,
  ) => {
    const byteLength = 4 * shape.reduce((a, b) => a * b);
    const made = async () => {
      const [bias, scale] = await Promise.all(infos.map((info) => readAsFloats(file, info)));
      return new Uint8Array(make(bias, scale).buffer);
    };
    tensors.set(name, { ...infos[0], name, type: "F32", shape, byteLength, made } satisfies TensorInfo);
  };
  add(`${STANDARD}.weight`, [width, width], (_, scale) => {
    const matrix = new Float32Array(width ** 2);
    scale.forEach((value, i) => matrix[i * width + i] = Math.sqrt(width) * value);
    return matrix;
  });
  add(`${STANDARD}.bias`, [width], (bias, scale) => bias.map((value, i) => -value * scale[i]));
  return { ...file, tensors };
}
