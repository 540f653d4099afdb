/** Gemma 4's vision tower in float64, written from Hugging Face transformers' definition. */
import type { Rgb } from "../../../../engine/vision/resize.ts";
import {
  attend,
  pixelsOf,
  type Place,
  plus,
  product,
  rotated,
  type Rows,
  squares,
  sum,
  tanhGelu,
  type Tensors,
} from "../exact.ts";
import type { TowerSizes } from "../tower_writer.ts";
import { POSITIONS } from "./write.ts";

/** Returns the rows of a picture that needs no scaling. */
export function exactGemma4(t: Tensors, sizes: TowerSizes & { eps: number }, picture: Rgb): Rows {
  const { width, layers, patch, merged, eps } = sizes;
  const [down, across] = [picture.height, picture.width].map((side) => side / patch);
  const places = Array.from({ length: down * across }, (_, i): Place => [Math.floor(i / across), i % across]);
  const table = t.get("v.position_embd.weight");
  const position = (axis: number, point: number) =>
    table.slice((axis * POSITIONS + point) * width, (axis * POSITIONS + point + 1) * width);
  let x = product(pixelsOf(picture, places, patch), t.get("v.patch_embd.weight"));
  x = plus(x, places.map(([, column]) => position(0, column)));
  x = plus(x, places.map(([row]) => position(1, row)));
  for (let layer = 0; layer < layers; layer++) {
    const of = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const norm = (rows: Rows, tensor: string) => rows.map((row) => t.rmsNorm(row, of(tensor), eps));
    const attn = attended(t, norm(x, "ln1"), sizes, places, of);
    x = plus(x, norm(clamped(t, attn, of("attn_out")), "attn_post_norm"));
    const inputs = norm(x, "ln2");
    const [gate, up] = ["ffn_gate", "ffn_up"].map((part) => clamped(t, inputs, of(part)));
    const hidden = gate.map((row, i) => row.map((g, j) => tanhGelu(g) * up[i][j]));
    x = plus(x, norm(clamped(t, hidden, of("ffn_down")), "ffn_post_norm"));
  }
  const soft = squares(x, across, merged).map((row) =>
    Float64Array.from({ length: width }, (_, i) => {
      const mean = sum(row.filter((_, j) => j % width === i)) / merged ** 2;
      const scaled = mean * Math.sqrt(width);
      return t.has("v.std_bias") ? (scaled - t.get("v.std_bias")[i]) * t.get("v.std_scale")[i] : scaled;
    })
  );
  return product(soft.map((row) => unweighted(row, eps)), t.get("mm.input_projection.weight"));
}

/** RMSNorm without weights. */
export function unweighted(row: Float64Array, eps = 1e-6): Float64Array {
  const scale = 1 / Math.sqrt(sum(row.map((v) => v * v)) / row.length + eps);
  return row.map((v) => v * scale);
}

/** Clamps the rows, multiplies them with a matrix, and returns the clamped products. */
function clamped(t: Tensors, x: Rows, name: string): Rows {
  const bound = (tensor: string, none: number) =>
    t.has(`${name}.${tensor}`) ? t.get(`${name}.${tensor}`)[0] : none;
  const within = (rows: Rows, side: string) => {
    const [least, most] = [bound(`${side}_min`, -Infinity), bound(`${side}_max`, Infinity)];
    return rows.map((row) => row.map((v) => Math.min(Math.max(v, least), most)));
  };
  return within(product(within(x, "input"), t.get(`${name}.weight`)), "output");
}

function attended(
  t: Tensors,
  x: Rows,
  { width, heads, eps }: TowerSizes & { eps: number },
  places: readonly Place[],
  of: (tensor: string) => string,
): Rows {
  const headDim = width / heads;
  const [q, k, v] = ["attn_q", "attn_k", "attn_v"].map((part) => clamped(t, x, of(part)));
  const attn = x.map(() => new Float64Array(width));
  for (let head = 0; head < heads; head++) {
    const part = (rows: Rows) => rows.map((row) => row.slice(head * headDim, (head + 1) * headDim));
    const turned = (rows: Rows, norm: string) =>
      part(rows).map((row, i) => turnedBy(t.rmsNorm(row, of(norm), eps), places[i]));
    const keys = turned(k, "attn_k_norm");
    const values = part(v).map((row) => unweighted(row, eps));
    turned(q, "attn_q_norm").forEach((row, i) => attn[i].set(attend(row, keys, values, 1), head * headDim));
  }
  return attn;
}

/** Returns the rotated head: its first half is rotated by the column, its second half by the row. */
function turnedBy(head: Float64Array, [row, column]: Place): Float64Array {
  const half = head.length / 2;
  const angles = (place: number) =>
    Array.from({ length: half / 2 }, (_, i) => place * 100 ** (-2 * i / half));
  return Float64Array.from([
    ...rotated(head.slice(0, half), angles(column)),
    ...rotated(head.slice(half), angles(row)),
  ]);
}
