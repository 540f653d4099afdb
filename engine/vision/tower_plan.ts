/** The vision tower of an `mmproj` file as a plan. Source: Hugging Face transformers, models/qwen3_vl. */
import { GgufError, quote } from "../gguf/errors.ts";
import { requireFloats } from "../gguf/float_tensor.ts";
import { inWords } from "../gguf/metadata.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import { PlanBuilder, type Value } from "../plan/builder.ts";
import { finishPlan } from "../plan/finish.ts";
import { activated } from "../plan/ops/activated.ts";
import { addRows, givenRows } from "../plan/ops/given.ts";
import { join } from "../plan/ops/join.ts";
import { layerNorm } from "../plan/ops/layer_norm.ts";
import { linear } from "../plan/ops/matmul.ts";
import { merge } from "../plan/ops/merge.ts";
import { returnPooled } from "../plan/ops/return_pooled.ts";
import { ropeTable } from "../plan/ops/rope_table.ts";
import { rotate } from "../plan/ops/rotate.ts";
import { textAttention } from "../plan/ops/text_attention.ts";
import type { Plan, RopeAngles } from "../plan/plan.ts";
import type { ImageSizes } from "./patches.ts";

/** Maximum tokens of one image. Larger images are scaled down. */
const MOST_TOKENS = 1024;
/** The family's smallest image, in pixels. */
const LEAST_PIXELS = 256 * 256;
const LEAST_PATCH = 8;
/** Limits on counts in a file. Every known model has smaller counts. */
const MOST = { layers: 256, width: 16_384, heads: 256, side: 4096, patch: 64 };
const ROPE_BASE = 10_000;
/** The only supported kind of tower. */
const PROJECTOR = "qwen3vl_merger";
const POSITIONS = "v.position_embd.weight";

/** Sizes of a tower, from the file's keys. */
export interface TowerShape extends ImageSizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly eps: number;
  /** Rows and columns of the grid that has a learned position embedding at each point. */
  readonly side: number;
  /** Width of the decoder that reads the image's rows. */
  readonly projection: number;
  /** The deep layers: their output is merged too, for the decoder's first layers. */
  readonly deepLayers: readonly number[];
}

/** Returns the kind of the tower in a file; "" if the file names none. */
export function projectorOf({ metadata }: Pick<GgufFile, "metadata">): string {
  return metadata.getString("clip.projector_type", metadata.getString("clip.vision.projector_type", ""));
}

/** Returns the tower's sizes. Throws GgufError for a file that is not a supported tower. */
export function readTower({ metadata, tensors }: GgufFile): TowerShape {
  const refuse = (key: string, detail: string): never => {
    throw new GgufError("GGUF_HPARAM", detail, { field: `key ${quote(key)}` });
  };
  const projector = projectorOf({ metadata });
  if (projector !== PROJECTOR) {
    refuse("clip.projector_type", `must be ${quote(PROJECTOR)} (got ${quote(projector)})`);
  }
  const count = (name: string, most: number, fallback?: number) => {
    const key = `clip.vision.${name}`;
    const value = metadata.getCount(key, fallback);
    return value >= 1 && value <= most ? value : refuse(key, `must be 1 to ${most} (got ${value})`);
  };
  const three = (name: string) => {
    const values = Array.from(metadata.getNumbers(`clip.vision.${name}`) ?? []);
    if (values.length === 3 && values.every(Number.isFinite)) return values;
    return refuse(`clip.vision.${name}`, `must be three numbers (got ${values.length})`);
  };
  const layers = count("block_count", MOST.layers);
  const [width, heads] = [count("embedding_length", MOST.width), count("attention.head_count", MOST.heads)];
  if (width % (16 * heads) !== 0) {
    refuse(
      "clip.vision.attention.head_count",
      `must divide ${width} into heads of 16, 32, 48, … (got ${heads})`,
    );
  }
  const patch = count("patch_size", MOST.patch);
  // The smallest image must not have more patches than the largest one.
  if (patch < LEAST_PATCH) refuse("clip.vision.patch_size", `must be at least ${LEAST_PATCH} (got ${patch})`);
  const factor = patch * count("spatial_merge_size", 2, 2);
  if (factor !== 2 * patch) refuse("clip.vision.spatial_merge_size", "must be 2 (got 1)");
  const deviations = three("image_std");
  if (deviations.some((value) => value <= 0)) refuse("clip.vision.image_std", "must be above 0");
  return {
    layers,
    width,
    heads,
    feedForward: count("feed_forward_length", MOST.width),
    eps: metadata.getNumber("clip.vision.attention.layer_norm_epsilon", 1e-6),
    side: Math.sqrt(tensors.get(POSITIONS)?.shape[1] ?? 0),
    projection: count("projection_dim", MOST.width),
    deepLayers: readDeepLayers(metadata.entries.get("clip.vision.is_deepstack_layers"), layers),
    patch,
    merged: 2,
    means: three("image_mean"),
    deviations,
    leastPixels: LEAST_PIXELS,
    mostPixels: MOST_TOKENS * factor ** 2,
  };
}

function readDeepLayers(flags: unknown, layers: number): number[] {
  if (flags === undefined) return [];
  if (Array.isArray(flags) && flags.length === layers && flags.every((flag) => typeof flag === "boolean")) {
    return flags.flatMap((flag, layer) => flag ? [layer] : []);
  }
  const field = `key "clip.vision.is_deepstack_layers"`;
  throw new GgufError("GGUF_HPARAM", `must be ${layers} booleans (got ${inWords(flags as never)})`, {
    field,
  });
}

/** Maximum patches of an image. */
export function mostPatches({ mostPixels, patch }: TowerShape): number {
  return mostPixels / patch ** 2;
}

/** Returns the tensor of learned position embeddings: [width, side x side]. Throws GgufError. */
export function positionTensor(file: GgufFile, { width, side }: TowerShape): TensorInfo {
  if (Number.isInteger(side) && side > 1 && side <= MOST.side) {
    return requireFloats(file, POSITIONS, [width, side ** 2]);
  }
  throw new GgufError("GGUF_HPARAM", "must have a square number of rows, at least 4", {
    field: `tensor ${quote(POSITIONS)}`,
  });
}

/**
 * Returns the tower's plan. A step has a row per patch, in the order of `patchesOf`; each row brings the patch's pixels
 * and then its position embedding. The step returns a row per `merged` x `merged` patches: one for the decoder's embedding, then
 * one for each deep layer. Throws GgufError for a missing or wrong tensor.
 */
export function buildTower(file: GgufFile, shape: TowerShape): Plan {
  const { layers, width, patch, eps, deepLayers } = shape;
  const b = new PlanBuilder(withFlatPatches(file, shape));
  b.leaveOut((name) => name === POSITIONS);
  const pixels = 3 * patch ** 2;
  const given = { width: pixels + width };
  const patches = givenRows(b, "patches", pixels, { ...given, first: 0 });
  const [x] = linear(b, patches, [{ name: "v.patch_embd", rows: width }]);
  // A still image is two equal frames.
  linear(b, patches, [{ name: "v.patch_embd_1", rows: width, addTo: x }]);
  addRows(b, x, { ...given, first: pixels });
  const table = ropeTable(b, angles(width / shape.heads));
  const deep: Value[] = [];
  for (let layer = 0; layer < layers; layer++) {
    addLayer(b, x, shape, table, `v.blk.${layer}`);
    if (!deepLayers.includes(layer)) continue;
    const name = (tensor: string) => `v.deepstack.${layer}.${tensor}`;
    const normed = layerNorm(b, merge(b, x, shape.merged ** 2), name("norm"), eps);
    deep.push(project(b, normed, shape, [name("fc1"), name("fc2")]));
  }
  const normed = layerNorm(b, x, "v.post_ln", eps);
  const main = project(b, merge(b, normed, shape.merged ** 2), shape, ["mm.0", "mm.2"]);
  returnPooled(b, deep.reduce((all, next) => join(b, all, next), main));
  return finishPlan(b, { architecture: "clip", vocabSize: 1, contextLength: mostPatches(shape) });
}

function addLayer(b: PlanBuilder, x: Value, shape: TowerShape, table: Value, prefix: string): void {
  const { width, heads, feedForward, eps } = shape;
  const name = (tensor: string) => `${prefix}.${tensor}`;
  const headDim = width / heads;
  const [value] = linear(b, layerNorm(b, x, name("ln1"), eps), [{ name: name("attn_qkv"), rows: 3 * width }]);
  const [q, k, v] = [0, width, 2 * width].map((column) => ({ value, column }));
  for (const part of [q, k]) rotate(b, part, heads, headDim, { table, rotated: headDim });
  const out = { heads, kvHeads: heads, headDim, reader: name("attn_out") };
  const attn = textAttention(b, [q, k, v], out, 1 / Math.sqrt(headDim));
  linear(b, attn, [{ name: name("attn_out"), rows: width, addTo: x }]);
  const ffn = activated(b, layerNorm(b, x, name("ln2"), eps), name("ffn_up"), feedForward, "gelu");
  linear(b, ffn, [{ name: name("ffn_down"), rows: width, addTo: x }]);
}

/** Returns merged rows in the decoder's width. */
function project(b: PlanBuilder, x: Value, { projection }: TowerShape, [up, down]: [string, string]): Value {
  const hidden = activated(b, x, up, x.columns, "gelu_erf");
  return linear(b, hidden, [{ name: down, rows: projection }])[0];
}

/** Returns the angles of a head. The patch's row turns the first half of the pairs, its column the second. */
function angles(headDim: number): RopeAngles {
  const [pairs, half] = [headDim / 2, headDim / 4];
  return {
    frequencies: Float64Array.from({ length: pairs }, (_, i) => ROPE_BASE ** (-(i % half) / half)),
    axes: Uint8Array.from({ length: pairs }, (_, i) => i < half ? 1 : 2),
    magnitude: 1,
  };
}

/** Returns the file with its patch embeddings as matrices: one for each frame of a pair. */
function withFlatPatches(file: GgufFile, { patch, width }: TowerShape): GgufFile {
  const tensors = new Map(file.tensors);
  for (const [from, to] of [["weight", "v.patch_embd.weight"], ["weight.1", "v.patch_embd_1.weight"]]) {
    const name = `v.patch_embd.${from}`;
    const info = tensors.get(name);
    if (info?.shape.join() !== [patch, patch, 3, width].join()) {
      throw new GgufError("GGUF_HPARAM", `must have shape ${[patch, patch, 3, width].join(" x ")}`, {
        field: `tensor ${quote(name)}`,
      });
    }
    tensors.delete(name);
    tensors.set(to, { ...info, name: to, shape: [3 * patch ** 2, width] });
  }
  return { ...file, tensors };
}
