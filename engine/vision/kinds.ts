/**
 * The table of vision towers. A kind is a description: shape.ts reads a file's sizes with it, and tower_plan.ts builds
 * its plan.
 */
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { activated } from "../plan/ops/activated.ts";
import { layerNorm } from "../plan/ops/layer_norm.ts";
import { linear } from "../plan/ops/matmul.ts";
import { average, merge } from "../plan/ops/merge.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import { GEMMA4 } from "./gemma4.ts";
import type { TowerKind, TowerShape } from "./kind.ts";

/** Maximum tokens of Qwen's images. Larger images are scaled down. */
const MOST_TOKENS = 1024;
/** Qwen's smallest image, in pixels. */
const LEAST_PIXELS = 256 * 256;
/** Maximum tokens on a side of Pixtral's images, which bounds the memory of a step. Files state up to 64 tokens. */
const MOST_SIDE = 64;

/** Qwen3-VL and Qwen3.5. Source: Hugging Face transformers, models/qwen3_vl. */
const QWEN3VL: TowerKind = {
  merged: ["spatial_merge_size", 2],
  scaling: (_, factor) => ({ to: "pixels", least: LEAST_PIXELS, most: MOST_TOKENS * factor ** 2 }),
  frames: 2,
  positions: "between points",
  norm: layerNorm,
  joined: true,
  rotary: { interleaved: false, exponent: (i, pairs) => i % (pairs / 2) / (pairs / 2) },
  project: (b, x, shape) => {
    const normed = layerNorm(b, x, "v.post_ln", shape.eps);
    return twoLayers(b, merge(b, normed, shape.merged ** 2), shape, ["mm.0", "mm.2"]);
  },
  text: {
    mark: "<|image_pad|>",
    around: ["<|vision_start|>", "<|vision_end|>"],
    row: "<|image_pad|>",
    grid: true,
    parts: ({ rows, columns }) => [rows * columns],
  },
};

/** SigLIP, whose learned positions belong to images of one size. Source: Hugging Face transformers, models/siglip. */
const SIGLIP = { frames: 1, positions: "at points", norm: layerNorm } as const;

/** Gemma 3. Source: Hugging Face transformers, models/gemma3. */
const GEMMA3: TowerKind = {
  ...SIGLIP,
  merged: ["projector.scale_factor", 4],
  scaling: ({ side }) => ({ to: "square", side: side() }),
  made: ({ width, projection }) => ({ "mm.input_projection.weight": { transposed: [projection, width] } }),
  project(b, x, { eps, merged, projection }) {
    const normed = layerNorm(b, x, "v.post_ln", eps);
    const soft = rmsNorm(b, average(b, normed, merged ** 2), "mm.soft_emb_norm", eps);
    return linear(b, soft, [{ name: "mm.input_projection", rows: projection }])[0];
  },
  text: {
    mark: "<start_of_image>",
    row: "<image_soft_token>",
    together: true,
    lines: 2,
    parts: ({ rows, columns }) => ["<start_of_image>", rows * columns, "<end_of_image>"],
  },
};

/** SmolVLM and Idefics 3. Source: Hugging Face transformers, models/idefics3. */
const IDEFICS3: TowerKind = {
  ...SIGLIP,
  merged: ["projector.scale_factor"],
  scaling: ({ side, longest }) => ({ to: "tiles", side: side(), longest: longest ?? 4 * side() }),
  project(b, x, { eps, merged, projection }) {
    const normed = layerNorm(b, x, "v.post_ln", eps);
    return linear(b, merge(b, normed, merged ** 2), [{ name: "mm.model.fc", rows: projection }])[0];
  },
  text: {
    mark: "<image>",
    row: "<image>",
    parts({ rows, columns, tiles }) {
      const around = "<fake_token_around_image>";
      const whole = [`${around}<global-img>`, rows * columns, around];
      if (!tiles) return whole;
      const lines = Array.from({ length: tiles.rows }, (_, row) => [
        ...Array.from({ length: tiles.columns }, (_, column) => [
          `${around}<row_${row + 1}_col_${column + 1}>`,
          rows * columns,
        ]).flat(),
        "\n",
      ]).flat();
      return [...lines, "\n", ...whole];
    },
  },
};

/** Pixtral, Mistral Small 3.1 and Ministral 3. Source: Hugging Face transformers, models/pixtral and models/mistral3. */
const PIXTRAL: TowerKind = {
  merged: ["spatial_merge_size", 1],
  scaling: ({ side }, factor) => ({ to: "longest", longest: Math.min(side(), MOST_SIDE * factor) }),
  frames: 1,
  norm: rmsNorm,
  normsFirst: true,
  gated: true,
  rotary: {
    interleaved: true,
    exponent: (i, pairs) => (2 * (i % (pairs / 2)) + (i < pairs / 2 ? 0 : 1)) / pairs,
  },
  made: ({ width, merged }) => ({ [`${MERGER}.weight`]: { grouped: [width, merged ** 2] } }),
  project(b, x, shape) {
    const { eps, merged } = shape;
    const normed = b.file.tensors.has("mm.input_norm.weight") ? rmsNorm(b, x, "mm.input_norm", eps) : x;
    const squares = merge(b, normed, merged ** 2);
    const rows = merged === 1 ? squares : linear(b, squares, [{ name: MERGER, rows: x.columns }])[0];
    return twoLayers(b, rows, shape, ["mm.1", "mm.2"], shape.projection);
  },
  text: {
    mark: "[IMG]",
    row: "[IMG]",
    parts: ({ rows, columns }) =>
      Array.from({ length: rows }, (_, row) => [columns, row + 1 < rows ? "[IMG_BREAK]" : "[IMG_END]"])
        .flat(),
  },
};
const MERGER = "mm.patch_merger";

/** The supported kinds, by `clip.projector_type`. */
export const KINDS: ReadonlyMap<string, TowerKind> = new Map([
  ["qwen3vl_merger", QWEN3VL],
  ["gemma3", GEMMA3],
  ["gemma4v", GEMMA4],
  ["idefics3", IDEFICS3],
  ["pixtral", PIXTRAL],
]);

/** Returns rows in the decoder's width, by two products with a GELU between them. */
export function twoLayers(
  b: PlanBuilder,
  x: Value,
  { projection }: TowerShape,
  [up, down]: readonly [string, string],
  hidden = x.columns,
): Value {
  return linear(b, activated(b, x, up, hidden, "gelu_erf"), [{ name: down, rows: projection }])[0];
}
