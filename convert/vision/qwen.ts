/**
 * The vision tower of Qwen3-VL and Qwen3.5. Sources: llama.cpp, convert_hf_to_gguf.py (Qwen3VLVisionModel); Hugging Face
 * transformers, models/qwen3_vl.
 */
import { affine, affineNorm } from "../affine.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { TensorList } from "../tensor_list.ts";
import { entry } from "../write/metadata.ts";
import { type Configs, countsOf, MOST, prefixOf, type Sizes, type TowerParts } from "./sizes.ts";

interface QwenSizes extends Sizes {
  readonly merged: number;
  /** Side of the square grid of position embeddings. */
  readonly side: number;
  readonly deep: readonly number[];
}

export function convertQwen({ vision, text }: Configs, list: TensorList): TowerParts {
  const sizes = readQwenSizes(vision, text);
  addTensors(list, prefixOf(list.finder, "pos_embed.weight", ["model.visual.", "visual."]), sizes);
  const flags = Array.from({ length: sizes.layers }, (_, layer) => sizes.deep.includes(layer));
  return {
    projector: "qwen3vl_merger",
    activation: "gelu",
    counts: { ...countsOf(sizes), spatial_merge_size: sizes.merged },
    eps: 1e-6, // in transformers' code
    entries: [entry("clip.vision.is_deepstack_layers", "BOOL", flags)],
  };
}

function readQwenSizes(config: Fields, text: Fields): QwenSizes {
  config.mustBe("hidden_act", "gelu_pytorch_tanh", "a tower's file has no key for another activation");
  config.mustBe("in_channels", 3, "images have three colours");
  config.mustBe("temporal_patch_size", 2, "a tower's file has two frames of the patch embedding");
  const layers = config.count("depth", MOST.layers);
  const points = config.count("num_position_embeddings", MOST.side ** 2, 2304);
  const side = Math.sqrt(points);
  if (!Number.isInteger(side)) config.refuse("num_position_embeddings", String(points), "a square number");
  const projection = text.count("hidden_size", MOST.width);
  config.mustBe(
    "out_hidden_size",
    projection,
    "the tower's rows must be as wide as the model's (hidden_size)",
  );
  const deep = config.get("deepstack_visual_indexes") ?? [];
  const isLayer = (index: unknown) => Number.isInteger(index) && Number(index) >= 0 && Number(index) < layers;
  if (!Array.isArray(deep) || !deep.every(isLayer) || new Set(deep).size < deep.length) {
    config.refuseValue("deepstack_visual_indexes", `a list of different layers below ${layers}`);
  }
  const patch = config.count("patch_size", MOST.patch);
  return {
    layers,
    width: config.count("hidden_size", MOST.width),
    heads: config.count("num_heads", MOST.heads),
    feedForward: config.count("intermediate_size", 4 * MOST.width),
    patch,
    image: side * patch,
    merged: config.count("spatial_merge_size", MOST.merged),
    side,
    projection,
    deep,
  };
}

function addTensors(list: TensorList, prefix: string, sizes: QwenSizes): void {
  const { layers, width, feedForward, patch, merged, side, projection, deep } = sizes;
  const module = (name: string) => `${prefix}${name}`;
  list.frames("v.patch_embd", module("patch_embed.proj.weight"), { rows: width, frames: 2, side: patch });
  list.vector("v.patch_embd.bias", module("patch_embed.proj.bias"), width);
  list.floats("v.position_embd.weight", module("pos_embed.weight"), side ** 2, width);
  const merge = (norm: string, up: string, down: string, from: string, normed: number) => {
    const rows = merged ** 2 * width;
    affineNorm(list, norm, module(`${from}.norm`), normed);
    affine(list, up, module(`${from}.linear_fc1`), rows, rows);
    affine(list, down, module(`${from}.linear_fc2`), projection, rows);
  };
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const block = (tensor: string) => module(`blocks.${layer}.${tensor}`);
    affineNorm(list, name("ln1"), block("norm1"), width);
    affine(list, name("attn_qkv"), block("attn.qkv"), 3 * width, width);
    affine(list, name("attn_out"), block("attn.proj"), width, width);
    affineNorm(list, name("ln2"), block("norm2"), width);
    affine(list, name("ffn_up"), block("mlp.linear_fc1"), feedForward, width);
    affine(list, name("ffn_down"), block("mlp.linear_fc2"), width, feedForward);
  }
  // The checkpoint numbers the deepstack mergers from 0; the GGUF file names each by its layer.
  for (const [i, layer] of deep.entries()) {
    const name = (tensor: string) => `v.deepstack.${layer}.${tensor}`;
    merge(name("norm"), name("fc1"), name("fc2"), `deepstack_merger_list.${i}`, merged ** 2 * width);
  }
  merge("v.post_ln", "mm.0", "mm.2", "merger", width);
}
