/** Seeded vision models: a decoder and its tower, for each kind of tower. */
import { CODE_OF_BYTE } from "../../../engine/tokenizer/byte_codes.ts";
import type { PromptImage } from "../../../engine/api/request.ts";
import { openGguf } from "../../../engine/gguf/reader.ts";
import { describeModel } from "../../../engine/load/describe.ts";
import { patchesOf } from "../../../engine/vision/patches.ts";
import type { Rgb } from "../../../engine/vision/resize.ts";
import { scaled } from "../../../engine/vision/scaling.ts";
import { readTower } from "../../../engine/vision/shape.ts";
import { promptImage } from "../../../engine/vision/tower.ts";
import { Random, seedOf } from "../../../testing/random.ts";
import { GgufBuilder } from "../../../engine/gguf/testing.ts";
import type { TensorType } from "../../../engine/gguf/types.ts";
import { SynthFile } from "../../../testing/synth/file.ts";
import { SYNTH_MODELS } from "../../../testing/synth/registry.ts";
import { describeTokens } from "../../../testing/synth/tokens.ts";
import { writeGemma4 } from "./gemma4/write.ts";
import { type TowerFamily, TowerWriter } from "./tower_writer.ts";

const QWEN = {
  projector: "qwen3vl_merger",
  feedForward: 320,
  layers: 3,
  patch: 16,
  merged: 2,
  image: 96,
  eps: 1e-6,
  mergeKey: "spatial_merge_size",
  marks: ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"],
  mark: "<|image_pad|>",
  write: writeQwen,
} as const;

const GEMMA4 = {
  projector: "gemma4v",
  feedForward: 320,
  layers: 2,
  patch: 8,
  image: 224, // towers of Gemma 4 do not read it
  decoder: "gemma4",
  deviation: 1,
  eps: 1e-6,
  mergeKey: "projector.scale_factor",
  marks: ["<|image>", "<|image|>", "<image|>", "<pad>"],
  mark: "<|image|>",
} as const;

export const TOWERS = {
  qwen3vl: { ...QWEN, width: 192, heads: 3, decoder: "qwen3", deep: [0, 2], sections: [12, 10, 10] },
  // Heads of 72 dimensions, as in Qwen3-VL 8B.
  qwen35: { ...QWEN, width: 288, heads: 4, decoder: "qwen35", sections: [6, 5, 5] },
  gemma3: {
    projector: "gemma3",
    width: 288,
    heads: 4,
    feedForward: 320,
    layers: 3,
    patch: 14,
    merged: 2,
    image: 112,
    decoder: "gemma3",
    eps: 1e-6,
    mergeKey: "projector.scale_factor",
    marks: ["<start_of_image>", "<image_soft_token>", "<end_of_image>"],
    mark: "<start_of_image>",
    write: writeGemma3,
  },
  // Like E2B: products are clamped, and the decoder has per-layer embeddings.
  gemma4: {
    ...GEMMA4,
    width: 192,
    heads: 3,
    merged: 3,
    shape: { window: 280 },
    write: (w, family, projection) => writeGemma4(w, family, projection, true),
  },
  // Like 31B: heads of 72 dimensions, pooled rows are standardized, and rows of images attend in both directions.
  gemma4_31b: {
    ...GEMMA4,
    width: 288,
    heads: 4,
    merged: 2,
    shape: { window: 280, perLayer: 0, shared: 0 },
    write: (w, family, projection) => writeGemma4(w, family, projection, false),
  },
  idefics3: {
    projector: "idefics3",
    width: 192,
    heads: 3,
    feedForward: 320,
    layers: 2,
    patch: 14,
    merged: 2,
    image: 64, // four patches per side, and remaining pixels
    decoder: "llama",
    eps: 1e-5,
    mergeKey: "projector.scale_factor",
    keys: { preproc_image_size: 128 },
    marks: ["<fake_token_around_image>", "<image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>"],
    mark: "<image>",
    write: writeIdefics3,
  },
  pixtral: {
    projector: "pixtral",
    width: 192,
    heads: 3,
    feedForward: 320,
    layers: 3,
    patch: 16,
    merged: 2,
    image: 160,
    decoder: "mistral3",
    eps: 1e-5,
    mergeKey: "spatial_merge_size",
    marks: ["[IMG]", "[IMG_BREAK]", "[IMG_END]"],
    mark: "[IMG]",
    write: writePixtral,
  },
} as const satisfies Readonly<Record<string, TowerFamily>>;

export type TowerName = keyof typeof TOWERS;

export interface VisionOptions {
  readonly tower: TowerName;
  /** Type of all matrices. */
  readonly type: TensorType;
  readonly seed: number;
}

const BYTES = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
/** The token for two line ends. */
const LINES = "ĊĊ";
const VOCABULARY = 272;

/** Returns a chat template that writes `image` for an image. */
const templateOf = (image: string) =>
  `{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}` +
  `{% if part.type == 'image' or 'image' in part or 'image_url' in part %}${image}` +
  `{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}` +
  `{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}`;

/** Returns the bytes of the model's file and of the tower's file. The same options give the same bytes. */
export function synthesizeVision(
  options: VisionOptions,
): { model: Uint8Array<ArrayBuffer>; tower: Uint8Array<ArrayBuffer> } {
  return { model: decoderOf(options), tower: towerOf(options) };
}

function fileOf(
  architecture: string,
  { type, seed }: VisionOptions,
): { file: SynthFile; builder: GgufBuilder } {
  const builder = new GgufBuilder();
  const sink = {
    set: builder.set.bind(builder),
    array: builder.array.bind(builder),
    tensor: (name: string, type: TensorType, shape: readonly number[], make: () => ArrayBufferView) =>
      void builder.tensor(name, type, shape, make()),
  };
  const file = new SynthFile(sink, architecture, {
    seed: `vision ${architecture} ${seed}`,
    typeOf: () => type,
  });
  builder.set("general.architecture", "STRING", architecture);
  return { file, builder };
}

function decoderOf(options: VisionOptions): Uint8Array<ArrayBuffer> {
  const { decoder, shape, sections, deep, mark, marks }: TowerFamily = TOWERS[options.tower];
  const { file, builder } = fileOf(deep ? "qwen3vl" : decoder, options);
  const family = SYNTH_MODELS[decoder];
  family.write(file, { ...family.tiny, vocabulary: VOCABULARY, ...shape });
  if (sections) file.keys("rope.dimension_sections", "INT32", [...sections, 0]);
  if (deep) file.key("n_deepstack_layers", "UINT32", deep.length);
  const controls = [...marks, "<|im_start|>", "<|im_end|>"]; // the last one ends an answer
  const words = { pre: "qwen2", tokens: [...BYTES, LINES, ...controls], merges: ["Ċ Ċ"], controls };
  const image = sections ? marks.join("") : mark;
  describeTokens(file, VOCABULARY, { template: templateOf(image), marks: [], words });
  return builder.build().bytes;
}

function writeQwen(w: TowerWriter, family: TowerFamily, projection: number): void {
  const { width, layers, deep = [] } = family;
  w.patches(family, ["weight", "weight.1"]);
  w.file.vector("v.patch_embd.bias", width, 0);
  w.positions(width, family.points ?? 6);
  w.layers(family, true);
  for (const layer of deep) {
    w.norm(`v.deepstack.${layer}.norm`, 4 * width);
    w.affine(`v.deepstack.${layer}.fc1`, 4 * width, 4 * width);
    w.affine(`v.deepstack.${layer}.fc2`, 4 * width, projection);
  }
  w.affine("mm.0", 4 * width, 4 * width);
  w.affine("mm.2", 4 * width, projection);
  const flags = Array.from({ length: layers }, (_, layer) => deep.includes(layer));
  w.file.sink.array("clip.vision.is_deepstack_layers", "BOOL", flags);
}

function writeSiglip(w: TowerWriter, family: TowerFamily): void {
  w.patches(family);
  w.file.vector("v.patch_embd.bias", family.width, 0);
  w.positions(family.width, Math.floor(family.image / family.patch));
  w.layers(family, false);
}

function writeGemma3(w: TowerWriter, family: TowerFamily, projection: number): void {
  writeSiglip(w, family);
  w.file.vector("mm.soft_emb_norm.weight", family.width);
  w.file.matrix("mm.input_projection", projection, family.width);
}

function writeIdefics3(w: TowerWriter, family: TowerFamily, projection: number): void {
  writeSiglip(w, family);
  w.file.matrix("mm.model.fc", family.merged ** 2 * family.width, projection);
}

function writePixtral(w: TowerWriter, family: TowerFamily, projection: number): void {
  const { width, feedForward, layers, merged } = family;
  w.patches(family);
  w.file.vector("v.pre_ln.weight", width);
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    w.file.vector(name("ln1.weight"), width);
    for (const part of ["attn_q", "attn_k", "attn_v", "attn_out"]) w.file.matrix(name(part), width, width);
    w.file.vector(name("ln2.weight"), width);
    for (const part of ["ffn_gate", "ffn_up"]) w.file.matrix(name(part), width, feedForward);
    w.file.matrix(name("ffn_down"), feedForward, width);
  }
  w.file.vector("mm.input_norm.weight", width);
  w.file.matrix("mm.patch_merger", merged ** 2 * width, width);
  w.file.matrix("mm.1", width, projection);
  w.file.matrix("mm.2", projection, projection);
  w.file.vector("v.token_embd.img_break", projection, 0);
}

function towerOf(options: VisionOptions): Uint8Array<ArrayBuffer> {
  const family: TowerFamily = TOWERS[options.tower];
  const { file, builder } = fileOf("clip", options);
  writeTower(file, family, options.type, SYNTH_MODELS[family.decoder].tiny.embedding);
  return builder.build().bytes;
}

/** Writes the keys and tensors of a tower for a decoder of the width `projection`. */
export function writeTower(file: SynthFile, family: TowerFamily, type: TensorType, projection: number): void {
  const { sink } = file;
  sink.set("clip.projector_type", "STRING", family.projector);
  sink.set("clip.has_vision_encoder", "BOOL", true);
  const counts = {
    block_count: family.layers,
    embedding_length: family.width,
    feed_forward_length: family.feedForward,
    "attention.head_count": family.heads,
    patch_size: family.patch,
    image_size: family.image,
    projection_dim: projection,
    [family.mergeKey]: family.merged,
    ...family.keys,
  };
  for (const [name, value] of Object.entries(counts)) sink.set(`clip.vision.${name}`, "UINT32", value);
  sink.set("clip.vision.attention.layer_norm_epsilon", "FLOAT32", family.eps);
  const { deviation = 0.5 } = family;
  sink.array("clip.vision.image_mean", "FLOAT32", Array(3).fill(1 - deviation));
  sink.array("clip.vision.image_std", "FLOAT32", Array(3).fill(deviation));
  family.write(new TowerWriter(file, type), family, projection);
}

/** Paths of a model's file and of its tower's file. */
export interface Files {
  readonly model: string;
  readonly tower: string;
}

/** Runs `test` with files of a model and its tower in a temporary folder. */
export async function withFiles(
  options: VisionOptions,
  test: (files: Files) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    const files = { model: `${folder}/model.gguf`, tower: `${folder}/mmproj-model.gguf` };
    const { model, tower } = synthesizeVision(options);
    await Deno.writeFile(files.model, model);
    await Deno.writeFile(files.tower, tower);
    await test(files);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** A picture of random pixels. */
export function picture(seed: string, width: number, height: number): Rgb {
  const random = new Random(seedOf(seed));
  return { width, height, pixels: random.bytes(3 * width * height) };
}

/** Returns the image as the engine prepares it, except that small images are not scaled up. */
export async function prepared(image: Rgb, { model, tower }: Files): Promise<PromptImage> {
  const shape = readTower(await openGguf(tower));
  const scaling = shape.scaling.to === "pixels"
    ? { ...shape.scaling, least: 1 }
    : shape.scaling.to === "fill"
    ? { ...shape.scaling, most: image.width * image.height }
    : shape.scaling;
  const patches = patchesOf(scaled(image, scaling, shape.patch * shape.merged), shape);
  const { tokenizer } = await describeModel({ model });
  return promptImage(patches, `${seedOf(image.pixels.join())}`, shape, tokenizer);
}
