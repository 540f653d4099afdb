/** Seeded vision models: a decoder of Qwen3-VL or Qwen3.5, and its tower. */
import { CODE_OF_BYTE } from "../../../engine/tokenizer/byte_codes.ts";
import type { PromptImage } from "../../../engine/api/request.ts";
import { openGguf } from "../../../engine/gguf/reader.ts";
import { patchesOf } from "../../../engine/vision/patches.ts";
import type { Rgb } from "../../../engine/vision/resize.ts";
import { readTower } from "../../../engine/vision/tower_plan.ts";
import { Random, seedOf } from "../../../testing/random.ts";
import { GgufBuilder } from "../../../engine/gguf/testing.ts";
import type { TensorType } from "../../../engine/gguf/types.ts";
import { SynthFile } from "../../../testing/synth/file.ts";
import { SYNTH_MODELS } from "../../../testing/synth/registry.ts";
import { describeTokens } from "../../../testing/synth/tokens.ts";

export interface VisionOptions {
  readonly architecture: "qwen3vl" | "qwen35";
  /** Type of all matrices. */
  readonly type: TensorType;
  readonly seed: number;
}

/** Sizes of the tower. As many numbers as possible differ, so that tests find mixed-up sizes. */
export const TOWER = { width: 192, heads: 3, feedForward: 320, layers: 3, side: 6, patch: 16 };
/** Layers of the tower that are merged for the decoder's first layers; Qwen3.5 merges none. */
export const DEEP = { qwen3vl: [0, 2], qwen35: [] } as const;
/** Rotated pairs of time, height and width. */
export const SECTIONS = { qwen3vl: [12, 10, 10], qwen35: [6, 5, 5] } as const;

/** Special tokens. The last token ends an answer. */
const MARKS = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|im_start|>", "<|im_end|>"];
const BYTES = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
const WORDS = { pre: "qwen2", tokens: [...BYTES, ...MARKS], merges: [], controls: MARKS };
const VOCABULARY = 272;
const TEMPLATE =
  `{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}` +
  `{% if part.type == 'image' or 'image' in part or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>` +
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
  const { architecture } = options;
  const { file, builder } = fileOf(architecture, options);
  const family = SYNTH_MODELS[architecture === "qwen3vl" ? "qwen3" : "qwen35"];
  family.write(file, { ...family.tiny, vocabulary: VOCABULARY });
  file.keys("rope.dimension_sections", "INT32", [...SECTIONS[architecture], 0]);
  if (architecture === "qwen3vl") file.key("n_deepstack_layers", "UINT32", DEEP.qwen3vl.length);
  describeTokens(file, VOCABULARY, { template: TEMPLATE, marks: [], words: WORDS });
  return builder.build().bytes;
}

function towerOf(options: VisionOptions): Uint8Array<ArrayBuffer> {
  const { width, heads, feedForward, layers, side, patch } = TOWER;
  const { file, builder } = fileOf("clip", options);
  const deep: readonly number[] = DEEP[options.architecture];
  const projection = SYNTH_MODELS.qwen3.tiny.embedding;
  builder.set("clip.projector_type", "STRING", "qwen3vl_merger").set("clip.has_vision_encoder", "BOOL", true);
  const counts = {
    block_count: layers,
    embedding_length: width,
    feed_forward_length: feedForward,
    "attention.head_count": heads,
    patch_size: patch,
    image_size: side * patch,
    projection_dim: projection,
    spatial_merge_size: 2,
  };
  for (const [name, value] of Object.entries(counts)) builder.set(`clip.vision.${name}`, "UINT32", value);
  builder.set("clip.vision.attention.layer_norm_epsilon", "FLOAT32", 1e-6);
  builder.array("clip.vision.image_mean", "FLOAT32", [0.5, 0.5, 0.5]);
  builder.array("clip.vision.image_std", "FLOAT32", [0.5, 0.5, 0.5]);
  const flags = Array.from({ length: layers }, (_, layer) => deep.includes(layer));
  builder.array("clip.vision.is_deepstack_layers", "BOOL", flags);
  const affine = (name: string, columns: number, rows: number) => {
    file.matrix(name, columns, rows);
    file.vector(`${name}.bias`, rows, 0);
  };
  const norm = (name: string, length: number) => {
    file.vector(`${name}.weight`, length);
    file.vector(`${name}.bias`, length, 0);
  };
  for (const part of ["weight", "weight.1"]) {
    file.floats(`v.patch_embd.${part}`, [patch, patch, 3, width], (random) => 0.05 * random.normal());
  }
  file.vector("v.patch_embd.bias", width, 0);
  file.floats("v.position_embd.weight", [width, side ** 2], (random) => random.normal());
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    norm(name("ln1"), width);
    affine(name("attn_qkv"), width, 3 * width);
    affine(name("attn_out"), width, width);
    norm(name("ln2"), width);
    affine(name("ffn_up"), width, feedForward);
    affine(name("ffn_down"), feedForward, width);
    if (!deep.includes(layer)) continue;
    norm(`v.deepstack.${layer}.norm`, 4 * width);
    affine(`v.deepstack.${layer}.fc1`, 4 * width, 4 * width);
    affine(`v.deepstack.${layer}.fc2`, 4 * width, projection);
  }
  norm("v.post_ln", width);
  affine("mm.0", 4 * width, 4 * width);
  affine("mm.2", 4 * width, projection);
  return builder.build().bytes;
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

/** A picture of random pixels whose sides need no scaling. */
export function picture(seed: string, width: number, height: number): Rgb {
  const random = new Random(seedOf(seed));
  return { width, height, pixels: random.bytes(3 * width * height) };
}

export async function prepared(image: Rgb, { tower }: Files): Promise<PromptImage> {
  const shape = readTower(await openGguf(tower));
  const { rows, columns, values } = patchesOf(image, { ...shape, leastPixels: 1 });
  return { rows: rows / 2, columns: columns / 2, digest: `${seedOf(image.pixels.join())}`, patches: values };
}
