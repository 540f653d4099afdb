/** The vision tower of an `mmproj` file as a plan. */
import { GgufError, quote } from "../gguf/errors.ts";
import type { GgufFile } from "../gguf/types.ts";
import { PlanBuilder, type Value } from "../plan/builder.ts";
import { finishPlan } from "../plan/finish.ts";
import { activated } from "../plan/ops/activated.ts";
import { addRows, givenRows } from "../plan/ops/given.ts";
import { glu } from "../plan/ops/glu.ts";
import { join } from "../plan/ops/join.ts";
import { layerNorm } from "../plan/ops/layer_norm.ts";
import { linear } from "../plan/ops/matmul.ts";
import { merge } from "../plan/ops/merge.ts";
import { returnPooled } from "../plan/ops/return_pooled.ts";
import { ropeTable } from "../plan/ops/rope_table.ts";
import { rotate } from "../plan/ops/rotate.ts";
import { type HeadColumns, textAttention } from "../plan/ops/text_attention.ts";
import type { Plan, RopeAngles } from "../plan/plan.ts";
import { twoLayers } from "./kinds.ts";
import { withMade } from "./made.ts";
import type { TowerShape } from "./kind.ts";
import { mostPatches, POSITIONS } from "./shape.ts";

const ROPE_BASE = 10_000;
/** The token between rows of Pixtral's images. The decoder has the same embedding. */
const ROW_END = "v.token_embd.img_break";
/** Tensors of an audio tower in the same file. */
const AUDIO = /^(mm\.)?a\./;

/** Returns the columns that a patch brings to a step: its pixels, then its position embedding if the tower has some. */
export function givenColumns({ patch, width, kind }: TowerShape): { pixels: number; width: number } {
  const pixels = 3 * patch ** 2;
  return { pixels, width: pixels + (kind.positions ? width : 0) };
}

/**
 * Returns the tower's plan. A step has a row per patch of a picture, in the order of `patchesOf`; each row brings
 * `givenColumns`. The step returns a row per `merged` x `merged` patches: one for the decoder's embedding, then one for
 * each deep layer. Throws GgufError for a missing or wrong tensor.
 */
export function buildTower(file: GgufFile, shape: TowerShape): Plan {
  const { kind, layers, width, eps, deepLayers } = shape;
  const flat = withFlatPatches(file, shape);
  const b = new PlanBuilder(withMade(kind.prepare?.(flat, shape) ?? flat, kind.made?.(shape) ?? {}));
  b.leaveOut((name) => AUDIO.test(name));
  b.leaveOut((name) => name === ROW_END || (kind.positions !== undefined && name === POSITIONS));
  const { pixels, width: columns } = givenColumns(shape);
  const patches = givenRows(b, "patches", pixels, { width: columns, first: 0 });
  let [x] = linear(b, patches, [{ name: "v.patch_embd", rows: width }]);
  if (kind.frames === 2) linear(b, patches, [{ name: "v.patch_embd_1", rows: width, addTo: x }]);
  if (kind.positions) addRows(b, x, { width: columns, first: pixels });
  if (kind.normsFirst) x = kind.norm(b, x, "v.pre_ln", eps);
  const own = kind.layers?.(b, shape);
  const table = kind.rotary && ropeTable(b, angles(width / shape.heads, kind.rotary.exponent));
  const deep: Value[] = [];
  for (let layer = 0; layer < layers; layer++) {
    if (own) own(x, `v.blk.${layer}`);
    else addLayer(b, x, shape, table, `v.blk.${layer}`);
    if (!deepLayers.includes(layer)) continue;
    const name = (tensor: string) => `v.deepstack.${layer}.${tensor}`;
    const normed = layerNorm(b, merge(b, x, shape.merged ** 2), name("norm"), eps);
    deep.push(twoLayers(b, normed, shape, [name("fc1"), name("fc2")]));
  }
  returnPooled(b, deep.reduce((all, next) => join(b, all, next), kind.project(b, x, shape)));
  return finishPlan(b, { architecture: "clip", vocabSize: 1, contextLength: mostPatches(shape) });
}

function addLayer(
  b: PlanBuilder,
  x: Value,
  shape: TowerShape,
  table: Value | undefined,
  prefix: string,
): void {
  const { kind, width, heads, feedForward, eps } = shape;
  const name = (tensor: string) => `${prefix}.${tensor}`;
  const headDim = width / heads;
  const [q, k, v] = attentionInputs(b, kind.norm(b, x, name("ln1"), eps), shape, name);
  for (const part of table ? [q, k] : []) {
    rotate(b, part, heads, headDim, {
      table: table!,
      rotated: headDim,
      interleaved: kind.rotary!.interleaved,
    });
  }
  const out = { heads, kvHeads: heads, headDim, reader: name("attn_out") };
  const attn = textAttention(b, [q, k, v], out, 1 / Math.sqrt(headDim));
  linear(b, attn, [{ name: name("attn_out"), rows: width, addTo: x }]);
  const normed = kind.norm(b, x, name("ln2"), eps);
  const [up, down] = feedForwardNames(b, name, width);
  const hidden = kind.gated
    ? glu(b, normed, name("ffn_gate"), up, feedForward)
    : activated(b, normed, up, feedForward, "gelu");
  linear(b, hidden, [{ name: down, rows: width, addTo: x }]);
}

function attentionInputs(
  b: PlanBuilder,
  x: Value,
  { kind, width }: TowerShape,
  name: (tensor: string) => string,
): [HeadColumns, HeadColumns, HeadColumns] {
  if (kind.joined) {
    const [value] = linear(b, x, [{ name: name("attn_qkv"), rows: 3 * width }]);
    return [{ value, column: 0 }, { value, column: width }, { value, column: 2 * width }];
  }
  const parts = ["attn_q", "attn_k", "attn_v"].map((part) => ({ name: name(part), rows: width }));
  const [q, k, v] = linear(b, x, parts).map((value) => ({ value, column: 0 }));
  return [q, k, v];
}

/** Returns the names of both products. The first files of SigLIP name one after the other. */
function feedForwardNames(b: PlanBuilder, name: (tensor: string) => string, width: number): [string, string] {
  const names: [string, string] = [name("ffn_up"), name("ffn_down")];
  const swapped = b.file.tensors.get(`${names[0]}.weight`)?.shape[1] === width;
  const plain = b.file.tensors.get(`${names[1]}.weight`)?.shape[1] === width;
  return swapped && !plain ? [names[1], names[0]] : names;
}

/** Returns the angles of a head. The patch's row turns the first half of the pairs, its column the second. */
function angles(headDim: number, exponent: (i: number, pairs: number) => number): RopeAngles {
  const pairs = headDim / 2;
  return {
    frequencies: Float64Array.from({ length: pairs }, (_, i) => ROPE_BASE ** -exponent(i, pairs)),
    axes: Uint8Array.from({ length: pairs }, (_, i) => i < pairs / 2 ? 1 : 2),
    magnitude: 1,
  };
}

/** Returns the file with its patch embeddings as matrices: one for each frame. */
function withFlatPatches(file: GgufFile, { patch, width, kind: { frames } }: TowerShape): GgufFile {
  const tensors = new Map(file.tensors);
  const names = [["weight", "v.patch_embd.weight"], ["weight.1", "v.patch_embd_1.weight"]];
  for (const [from, to] of names.slice(0, frames)) {
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
