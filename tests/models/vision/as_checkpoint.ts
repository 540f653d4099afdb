/** Writes seeded towers as checkpoints of Hugging Face. */
import { join } from "@std/path";
import { Written } from "../../../convert/testing.ts";
import { type StoredTensor, storeFloats, writeCheckpoint } from "../../../testing/checkpoints.ts";
import { type Files, type TowerName, TOWERS } from "./files.ts";
import { POSITIONS } from "./gemma4/write.ts";
import type { TowerSizes } from "./tower_writer.ts";

interface Layout {
  readonly type: string;
  /** Patterns of tensor names in the tower's file, and the names in the checkpoint. */
  readonly names: readonly (readonly [gguf: RegExp, checkpoint: string])[];
  /** Keys of config.json besides the common ones: the model's, then the tower's. */
  readonly model?: Record<string, unknown>;
  readonly vision?: Record<string, unknown>;
  readonly processor?: Record<string, unknown>;
}

const QWEN: Layout = {
  type: "qwen3_vl",
  names: [
    [/^v\.position_embd\./, "model.visual.pos_embed."],
    [/^v\.patch_embd\./, "model.visual.patch_embed.proj."],
    [/^v\.post_ln\./, "model.visual.merger.norm."],
    [/^mm\.0\./, "model.visual.merger.linear_fc1."],
    [/^mm\.2\./, "model.visual.merger.linear_fc2."],
    [/^v\.deepstack\.0\./, "model.visual.deepstack_merger_list.0."],
    [/^v\.deepstack\.2\./, "model.visual.deepstack_merger_list.1."],
    [/(list\.\d\.)fc/, "$1linear_fc"],
    [/^v\.blk\.(\d+)\.ln([12])\./, "model.visual.blocks.$1.norm$2."],
    [/^v\.blk\.(\d+)\.attn_qkv\./, "model.visual.blocks.$1.attn.qkv."],
    [/^v\.blk\.(\d+)\.attn_out\./, "model.visual.blocks.$1.attn.proj."],
    [/^v\.blk\.(\d+)\.ffn_up\./, "model.visual.blocks.$1.mlp.linear_fc1."],
    [/^v\.blk\.(\d+)\.ffn_down\./, "model.visual.blocks.$1.mlp.linear_fc2."],
  ],
};

const SIGLIP: Layout["names"] = [
  [/^v\.position_embd\./, "v.embeddings.position_embedding."],
  [/^v\.patch_embd\./, "v.embeddings.patch_embedding."],
  [/^v\.post_ln\./, "v.post_layernorm."],
  [/^v\.blk\.(\d+)\.ln([12])\./, "v.encoder.layers.$1.layer_norm$2."],
  [/^v\.blk\.(\d+)\.attn_(\w+)\./, "v.encoder.layers.$1.self_attn.$2_proj."],
  [/^v\.blk\.(\d+)\.ffn_up\./, "v.encoder.layers.$1.mlp.fc1."],
  [/^v\.blk\.(\d+)\.ffn_down\./, "v.encoder.layers.$1.mlp.fc2."],
];

const GEMMA4: Layout = {
  type: "gemma4",
  names: [
    [/^v\.position_embd\.weight/, "v.patch_embedder.position_embedding_table"],
    [/^v\.patch_embd\./, "v.patch_embedder.input_proj."],
    [/^v\.blk\.(\d+)\.ln1\./, "v.encoder.layers.$1.input_layernorm."],
    [/^v\.blk\.(\d+)\.ln2\./, "v.encoder.layers.$1.pre_feedforward_layernorm."],
    [/^v\.blk\.(\d+)\.attn_post_norm\./, "v.encoder.layers.$1.post_attention_layernorm."],
    [/^v\.blk\.(\d+)\.ffn_post_norm\./, "v.encoder.layers.$1.post_feedforward_layernorm."],
    [/^v\.blk\.(\d+)\.attn_(.)_norm\./, "v.encoder.layers.$1.self_attn.$2_norm."],
    [/^v\.blk\.(\d+)\.attn_(.)\w*\./, "v.encoder.layers.$1.self_attn.$2_proj."],
    [/^v\.blk\.(\d+)\.ffn_(\w+)\./, "v.encoder.layers.$1.mlp.$2_proj."],
    [/_proj\.weight$/, "_proj.linear.weight"],
    [/input_proj\.linear\./, "input_proj."],
    [/^v\./, "model.vision_tower."],
    [/^mm\.input_projection\./, "model.embed_vision.embedding_projection."],
  ],
  processor: { image_mean: [0, 0, 0], image_std: [1, 1, 1] },
};

const LAYOUTS: Readonly<Record<TowerName, Layout>> = {
  qwen3vl: { ...QWEN, vision: { deepstack_visual_indexes: TOWERS.qwen3vl.deep } },
  qwen35: { ...QWEN, type: "qwen3_5" },
  gemma3: {
    type: "gemma3",
    names: [
      ...SIGLIP,
      [/^v\./, "vision_tower.vision_model."],
      [/^mm\.soft_emb_norm\./, "multi_modal_projector.mm_soft_emb_norm."],
      [/^mm\.input_projection\./, "multi_modal_projector.mm_input_projection_"],
    ],
    model: { mm_tokens_per_image: 16 },
  },
  gemma4: { ...GEMMA4, vision: { use_clipped_linears: true, position_embedding_size: POSITIONS } },
  gemma4_31b: {
    ...GEMMA4,
    vision: { standardize: true, pooling_kernel_size: 2, position_embedding_size: POSITIONS },
  },
  idefics3: {
    type: "smolvlm",
    names: [...SIGLIP, [/^v\./, "model.vision_model."], [
      /^mm\.model\.fc\./,
      "model.connector.modality_projection.proj.",
    ]],
    model: { scale_factor: 2 },
    vision: { layer_norm_eps: 1e-5 },
    processor: { size: { longest_edge: 128 }, max_image_size: { longest_edge: 64 } },
  },
  pixtral: {
    type: "mistral3",
    names: [
      [/^v\.patch_embd\./, "vision_tower.patch_conv."],
      [/^v\.pre_ln\./, "vision_tower.ln_pre."],
      [/^v\.blk\.(\d+)\.ln1\./, "vision_tower.transformer.layers.$1.attention_norm."],
      [/^v\.blk\.(\d+)\.ln2\./, "vision_tower.transformer.layers.$1.ffn_norm."],
      [/^v\.blk\.(\d+)\.attn_(.)\w*\./, "vision_tower.transformer.layers.$1.attention.$2_proj."],
      [/^v\.blk\.(\d+)\.ffn_(\w+)\./, "vision_tower.transformer.layers.$1.feed_forward.$2_proj."],
      [/^mm\.input_norm\./, "multi_modal_projector.norm."],
      [/^mm\.patch_merger\./, "multi_modal_projector.patch_merger.merging_layer."],
      [/^mm\.(\d)\./, "multi_modal_projector.linear_$1."],
    ],
    model: { spatial_merge_size: 2 },
    vision: { model_type: "pixtral", hidden_act: "silu" },
  },
};

/** Id of the token between rows of Pixtral's images. */
const ROW_END = 5;
const VOCABULARY = 8;

/** Writes a checkpoint with the tensors of a tower's file. */
export async function writeAsCheckpoint(folder: string, { tower }: Files, name: TowerName): Promise<void> {
  const written = await Written.read(tower);
  const width = written.gguf.metadata.getCount("clip.vision.projection_dim");
  const { type, names, model, vision, processor } = LAYOUTS[name];
  const sizes: TowerSizes = TOWERS[name];
  const tensors = new Map<string, StoredTensor>();
  for (const [gguf, { shape }] of written.gguf.tensors) {
    const stored = names.reduce((text, [pattern, to]) => text.replace(pattern, to), gguf);
    if (stored === gguf || gguf.startsWith("v.patch_embd.weight.")) continue;
    const values = valuesOf(written, gguf, sizes);
    const dimensions = gguf.endsWith("_min") || gguf.endsWith("_max") ? [] : shape.toReversed();
    if (name.startsWith("gemma4") && gguf.startsWith("v.patch_embd.")) {
      dimensions.splice(1, 3, 3 * sizes.patch ** 2);
    }
    if (written.gguf.tensors.has(`${gguf}.1`)) dimensions.splice(2, 0, 2);
    tensors.set(stored, storeFloats("F32", dimensions, values));
  }
  const embedding = new Float32Array(VOCABULARY * width);
  if (name === "pixtral") embedding.set(written.values("v.token_embd.img_break"), ROW_END * width);
  tensors.set("language_model.model.embed_tokens.weight", storeFloats("F32", [VOCABULARY, width], embedding));
  const config = {
    model_type: type,
    ...model,
    text_config: { hidden_size: width, vocab_size: VOCABULARY },
    vision_config: { ...visionConfig(sizes, type, width), ...vision },
  };
  const tokenizer = { added_tokens: [{ id: ROW_END, content: "[IMG_BREAK]" }] };
  await writeCheckpoint(folder, { config, tokenizer, tokenizerConfig: {}, tensors, shards: 1 });
  const colours = { image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] };
  await Deno.writeTextFile(
    join(folder, "preprocessor_config.json"),
    JSON.stringify({ ...colours, ...processor }),
  );
}

/** Returns a tensor's values in the order of the checkpoint. */
function valuesOf(written: Written, name: string, { patch, width, heads }: TowerSizes): Float32Array {
  const values = written.values(name);
  if (name === "mm.soft_emb_norm.weight") return values.map((value) => value - 1);
  if (name === "v.patch_embd.weight" && written.gguf.tensors.has(`${name}.1`)) {
    const frames = [values, written.values(`${name}.1`)];
    const plane = patch ** 2;
    return Float32Array.from(
      { length: 2 * values.length },
      (_, i) => frames[Math.floor(i / plane) % 2][Math.floor(i / plane / 2) * plane + i % plane],
    );
  }
  if (name === "v.patch_embd.weight" && written.gguf.tensors.has("v.blk.0.attn_q_norm.weight")) {
    return values.map((_, i) => {
      const [row, pixel, colour] = [Math.floor(i / 3 / patch ** 2), Math.floor(i / 3) % patch ** 2, i % 3];
      return values[(row * 3 + colour) * patch ** 2 + pixel];
    });
  }
  const pixtral = written.gguf.tensors.has("v.pre_ln.weight");
  if (!pixtral || !/attn_[qk]\./.test(name)) return values;
  const half = width / heads / 2;
  return values.map((_, i) => {
    const [row, column] = [Math.floor(i / width), i % width];
    const inHead = row % (2 * half);
    const from = row - inHead + inHead % half * 2 + Math.floor(inHead / half);
    return values[from * width + column];
  });
}

function visionConfig(sizes: TowerSizes, type: string, projection: number): Record<string, unknown> {
  const { layers, width, heads, feedForward, patch, image } = sizes;
  const common = { hidden_size: width, intermediate_size: feedForward, patch_size: patch };
  if (!type.startsWith("qwen")) {
    return { ...common, num_hidden_layers: layers, num_attention_heads: heads, image_size: image };
  }
  return {
    ...common,
    depth: layers,
    num_heads: heads,
    spatial_merge_size: 2,
    temporal_patch_size: 2,
    num_position_embeddings: 36,
    out_hidden_size: projection,
    hidden_act: "gelu_pytorch_tanh",
  };
}
