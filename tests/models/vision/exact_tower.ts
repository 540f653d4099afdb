/** Vision towers in float64. Each is written from its family's definition. */
import type { Rgb } from "../../../engine/vision/resize.ts";
import { scaled } from "../../../engine/vision/scaling.ts";
import { exactGemma4 } from "./gemma4/exact_tower.ts";
import {
  attend,
  erfGelu,
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
} from "./exact.ts";
import { type TowerName, TOWERS } from "./files.ts";
import type { TowerSizes } from "./tower_writer.ts";

/** Towers with common layers. Gemma 4's towers have their own exact pass. */
type Usual = Exclude<TowerName, "gemma4" | "gemma4_31b">;

/** Returns the rows of an image's pictures, one after the other. Only Idefics 3's images need scaling. */
export function exactRows(t: Tensors, tower: TowerName, image: Rgb): Float64Array[][] {
  const { pictures } = tower === "idefics3"
    ? scaled(image, { to: "tiles", side: TOWERS.idefics3.image, longest: 128 }, 0)
    : { pictures: [image] };
  const each = pictures.map((one) => exactTower(t, tower, one));
  return each[0].map((_, part) => each.flatMap((rows) => rows[part]));
}

/** Returns a picture's rows for the decoder's embedding and for each deep layer. The picture needs no scaling. */
function exactTower(t: Tensors, name: TowerName, picture: Rgb): Rows[] {
  if (name === "gemma4" || name === "gemma4_31b") return [exactGemma4(t, TOWERS[name], picture)];
  const sizes: TowerSizes & { eps: number; deep?: readonly number[] } = TOWERS[name];
  const { width, heads, layers, patch, merged, eps } = sizes;
  const [down, across] = [picture.height, picture.width].map((side) => Math.floor(side / patch));
  const places = Array.from({ length: down * across }, (_, i): Place => [Math.floor(i / across), i % across]);
  let x = embedded(t, name, pixelsOf(picture, places, patch), places, [down, across]);
  const norm = (rows: Rows, tensor: string) =>
    name === "pixtral" ? rows.map((row) => t.rmsNorm(row, tensor, eps)) : t.layerNorm(rows, tensor, eps);
  const headDim = width / heads;
  const turn = (head: Float64Array, place: Place) => turned(name, head, place);
  const results: Rows[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const of = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const [q, k, v] = queriesKeysValues(t, norm(x, of("ln1")), of, width);
    const attn = x.map(() => new Float64Array(width));
    for (let head = 0; head < heads; head++) {
      const part = (rows: Rows) => rows.map((row) => row.slice(head * headDim, (head + 1) * headDim));
      const [queries, keys] = [q, k].map((rows) => part(rows).map((row, i) => turn(row, places[i])));
      queries.forEach((row, i) => attn[i].set(attend(row, keys, part(v)), head * headDim));
    }
    x = plus(x, t.affine(attn, of("attn_out")));
    x = plus(x, t.affine(hidden(t, norm(x, of("ln2")), of), of("ffn_down")));
    if (!sizes.deep?.includes(layer)) continue;
    const ds = (tensor: string) => `v.deepstack.${layer}.${tensor}`;
    results.push(
      twoLayers(t, t.layerNorm(squares(x, across, merged), ds("norm"), eps), [ds("fc1"), ds("fc2")]),
    );
  }
  return [ended(t, name, x, across), ...results];
}

function embedded(
  t: Tensors,
  name: TowerName,
  pixels: Rows,
  places: readonly Place[],
  [down, across]: readonly number[],
): Rows {
  const first = t.get("v.patch_embd.weight");
  if (name === "pixtral") {
    return product(pixels, first).map((row) => t.rmsNorm(row, "v.pre_ln", TOWERS.pixtral.eps));
  }
  const grid = t.get("v.position_embd.weight");
  const { width } = TOWERS[name];
  const qwen = t.has("v.patch_embd.weight.1");
  const second = qwen ? t.get("v.patch_embd.weight.1") : first.map(() => 0);
  const x = product(pixels, first.map((v, i) => v + second[i]), t.get("v.patch_embd.bias"));
  const side = Math.sqrt(grid.length / width);
  const position = ([row, column]: Place) => {
    const [y, z] = qwen ? [row * (side - 1) / (down - 1), column * (side - 1) / (across - 1)] : [row, column];
    return Float64Array.from({ length: width }, (_, i) => {
      let value = 0;
      for (let a = 0; a < side; a++) {
        for (let b = 0; b < side; b++) {
          const weight = Math.max(0, 1 - Math.abs(a - y)) * Math.max(0, 1 - Math.abs(b - z));
          value += weight * grid[(a * side + b) * width + i];
        }
      }
      return value;
    });
  };
  return plus(x, places.map(position));
}

function turned(name: TowerName, head: Float64Array, place: Place): Float64Array {
  const [pairs, quarter] = [head.length / 2, head.length / 4];
  if (name === "pixtral") {
    // Even frequencies are for rows, odd ones for columns. The pairs of rows come first.
    const angles = Array.from({ length: pairs }, (_, i) => {
      const [axis, which] = i < quarter ? [0, 2 * i] : [1, 2 * (i - quarter) + 1];
      return place[axis] * 10_000 ** (-which / pairs);
    });
    return rotated(head, angles, true);
  }
  if (name === "gemma3" || name === "idefics3") return head;
  const angles = Array.from(
    { length: pairs },
    (_, i) => place[i < quarter ? 0 : 1] * 10_000 ** (-(i % quarter) / quarter),
  );
  return rotated(head, angles);
}

function queriesKeysValues(t: Tensors, x: Rows, of: (tensor: string) => string, width: number): Rows[] {
  if (!t.has(`${of("attn_qkv")}.weight`)) {
    return ["attn_q", "attn_k", "attn_v"].map((part) => t.affine(x, of(part)));
  }
  const qkv = t.affine(x, of("attn_qkv"));
  return [0, 1, 2].map((part) => qkv.map((row) => row.slice(part * width, (part + 1) * width)));
}

function hidden(t: Tensors, x: Rows, of: (tensor: string) => string): Rows {
  const up = t.affine(x, of("ffn_up"));
  if (!t.has(`${of("ffn_gate")}.weight`)) return up.map((row) => row.map(tanhGelu));
  const gate = t.affine(x, of("ffn_gate"));
  return up.map((row, i) => row.map((v, j) => v * gate[i][j] / (1 + Math.exp(-gate[i][j]))));
}

function twoLayers(t: Tensors, x: Rows, [up, down]: readonly [string, string]): Rows {
  return t.affine(t.affine(x, up).map((row) => row.map(erfGelu)), down);
}

/** Returns the rows that replace the decoder's embeddings. */
function ended(t: Tensors, name: Usual, x: Rows, across: number): Rows {
  const { merged, eps, width } = TOWERS[name];
  const normed = () => t.layerNorm(x, "v.post_ln", eps);
  switch (name) {
    case "qwen3vl":
    case "qwen35":
      return twoLayers(t, squares(normed(), across, merged), ["mm.0", "mm.2"]);
    case "idefics3":
      return t.affine(squares(normed(), across, merged), "mm.model.fc");
    case "gemma3": {
      const means = squares(normed(), across, merged).map((row) =>
        Float64Array.from(
          { length: width },
          (_, i) => sum(row.filter((_, j) => j % width === i)) / merged ** 2,
        )
      );
      const soft = means.map((row) => t.rmsNorm(row, "mm.soft_emb_norm", eps));
      const matrix = t.get("mm.input_projection.weight"); // [width, projection]
      const columns = matrix.length / width;
      return soft.map((row) =>
        Float64Array.from({ length: columns }, (_, c) => sum(row.map((v, i) => v * matrix[i * columns + c])))
      );
    }
    case "pixtral": {
      const inputs = x.map((row) => t.rmsNorm(row, "mm.input_norm", eps));
      // Columns of the merger: the values of a channel in all patches of the square are adjacent.
      const unfolded = squares(inputs, across, merged).map((row) =>
        row.map((_, i) => row[i % merged ** 2 * width + Math.floor(i / merged ** 2)])
      );
      return twoLayers(t, product(unfolded, t.get("mm.patch_merger.weight")), ["mm.1", "mm.2"]);
    }
  }
}
