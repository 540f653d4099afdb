/**
 * Converts the vision tower of a checkpoint to the keys and tensors of an `mmproj` file. Sources: llama.cpp,
 * convert_hf_to_gguf.py (Qwen3VLVisionModel); Hugging Face transformers, models/qwen3_vl.
 */
import { join } from "@std/path";
import { quote } from "../../engine/gguf/errors.ts";
import { affine, affineNorm } from "../affine.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { Fields, oneOf, readJson } from "../checkpoint/json.ts";
import { refuse } from "../errors.ts";
import type { Quantization } from "../quantize/quantize_to.ts";
import { TensorList } from "../tensor_list.ts";
import { WeightFinder } from "../write/matrix_source.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { OutputTensor } from "../write/output_tensor.ts";

/** Keys and tensors of a vision tower's file. */
export interface ConvertedTower {
  readonly architecture: "clip";
  readonly entries: readonly Entry[];
  readonly tensors: readonly OutputTensor[];
  /** Number of unused checkpoint tensors, by model part: those of the model itself. */
  readonly leftOut: Readonly<Record<string, number>>;
}

/** Values of `model_type` of the models that have this kind of tower. */
const TYPES: readonly string[] = ["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"];
const PREFIXES = ["model.visual.", "visual."];
const MOST = { layers: 256, width: 16_384, heads: 256, side: 4096, patch: 64 };
const MAX_CONFIG_BYTES = 4 * 1024 * 1024;

interface Sizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly patch: number;
  readonly merged: number;
  /** Rows and columns of the grid of position embeddings. */
  readonly side: number;
  readonly projection: number;
  readonly deep: readonly number[];
}

/**
 * Converts the vision tower of a checkpoint. Throws ConvertError for a model without a supported tower, for a missing
 * or wrong key or tensor, and for a tensor of the tower that no part reads.
 */
export async function convertTower(
  root: Fields,
  checkpoint: Checkpoint,
  quantize: Quantization | undefined,
): Promise<ConvertedTower> {
  const type = root.string("model_type");
  if (!TYPES.includes(type)) root.refuse("model_type", quote(type), `${oneOf(TYPES)} for a vision tower`);
  const config = root.fields("vision_config") ?? root.refuse("vision_config", "none", "an object");
  const text = root.fields("text_config") ?? root;
  const sizes = readSizes(config, text);
  const finder = new WeightFinder(checkpoint, root);
  const list = new TensorList(checkpoint, finder, quantize);
  const prefix = PREFIXES.find((prefix) => finder.has(`${prefix}pos_embed.weight`)) ?? PREFIXES[0];
  addTensors(list, prefix, sizes);
  const own = [...checkpoint.tensors.values()].filter(({ name }) => name.startsWith(prefix));
  const unread = own.find(({ name }) => !finder.used.has(name));
  if (unread) refuse(unread.file, `tensor ${quote(unread.name)}`, "no part of the vision tower reads it");
  const rest = checkpoint.tensors.size - own.length;
  const eps = text.positive("rms_norm_eps", 1, 1e-6);
  return {
    architecture: "clip",
    entries: [...entriesOf(sizes, eps), ...await readColours(checkpoint.folder)],
    tensors: list.tensors,
    leftOut: rest === 0 ? {} : { "the model itself": rest },
  };
}

function readSizes(config: Fields, text: Fields): Sizes {
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
  return {
    layers,
    width: config.count("hidden_size", MOST.width),
    heads: config.count("num_heads", MOST.heads),
    feedForward: config.count("intermediate_size", 4 * MOST.width),
    patch: config.count("patch_size", MOST.patch),
    merged: config.count("spatial_merge_size", 16),
    side,
    projection,
    deep,
  };
}

function addTensors(list: TensorList, prefix: string, sizes: Sizes): void {
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

function entriesOf(sizes: Sizes, eps: number): Entry[] {
  const { layers, width, heads, feedForward, patch, merged, side, projection, deep } = sizes;
  const counts = {
    projection_dim: projection,
    image_size: side * patch,
    patch_size: patch,
    embedding_length: width,
    feed_forward_length: feedForward,
    block_count: layers,
    "attention.head_count": heads,
    spatial_merge_size: merged,
  };
  const flags = Array.from({ length: layers }, (_, layer) => deep.includes(layer));
  return [
    entry("general.architecture", "STRING", "clip"),
    entry("general.type", "STRING", "mmproj"),
    entry("clip.has_vision_encoder", "BOOL", true),
    entry("clip.projector_type", "STRING", "qwen3vl_merger"),
    entry("clip.use_gelu", "BOOL", true),
    ...Object.entries(counts).map(([key, value]) => entry(`clip.vision.${key}`, "UINT32", value)),
    entry("clip.vision.attention.layer_norm_epsilon", "FLOAT32", eps),
    entry("clip.vision.is_deepstack_layers", "BOOL", flags),
  ];
}

/**
 * Returns the keys for the colours' means and deviations, from the processor's configuration in one of its two files.
 */
async function readColours(folder: string): Promise<Entry[]> {
  const path = join(folder, "preprocessor_config.json");
  const other = join(folder, "processor_config.json");
  const alone = await readJson(path, MAX_CONFIG_BYTES);
  const joined = alone === undefined ? await readJson(other, MAX_CONFIG_BYTES) : undefined;
  if (alone === undefined && joined === undefined) {
    refuse(path, undefined, "a checkpoint with a vision tower must have this file");
  }
  const config = alone === undefined
    ? Fields.of(other, joined).fields("image_processor") ??
      refuse(other, 'key "image_processor"', "it is missing")
    : Fields.of(path, alone);
  return ["image_mean", "image_std"].map((name) => {
    const values = config.get(name);
    const valid = Array.isArray(values) && values.length === 3 &&
      values.every((value) => Number.isFinite(value) && (name === "image_mean" || value > 0));
    if (!valid) config.refuseValue(name, "three numbers");
    return entry(`clip.vision.${name}`, "FLOAT32", values as number[]);
  });
}
