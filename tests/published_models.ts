/** Seeded models as their makers would publish them: what config.json says, and what tensors are called. */
import { GEMMA, MODERN, type PublishedTokenizer, UNIGRAM, WORD_PIECE } from "./checkpoint_tokenizers.ts";
import { type StoredTensor, storeFloats, tinyCheckpoint } from "./checkpoints.ts";
import { FAMILIES } from "./synth/registry.ts";
import type { Architecture } from "./synth/synth.ts";

export type Config = Record<string, unknown>;
type Names = readonly (readonly [ours: RegExp, theirs: string])[];

/** A seeded model, and how its makers would publish it. */
export interface Published {
  readonly architecture: Architecture;
  /** `general.architecture` of what it becomes, where that is not the seeded file's. */
  readonly becomes?: string;
  readonly config: Config;
  /** Of the seeded file's tensors without `.weight`; those that none is of are left out. */
  readonly names: Names;
  readonly tokenizer: PublishedTokenizer;
  /** A text, and its ids between what stands around it. */
  readonly ids: readonly [text: string, ids: readonly number[]];
  /** Norms are published as the distance from 1. */
  readonly shiftedNorms?: boolean;
  /** Dimensions of a head, where checkpoints keep the two rows of a rotary pair half a head apart, and not side by side. */
  readonly halves?: { readonly headDim: number };
  readonly change?: (tensors: Map<string, StoredTensor>, floats: (name: string) => Floats) => void;
  readonly dense?: boolean;
  /** The conversion makes rotary factors out of config.json, and they are not the seeded file's. */
  readonly ownFactors?: boolean;
}

export interface Floats {
  readonly shape: readonly number[]; // rows first
  readonly values: Float32Array;
}

const { embedding, vocabulary, context } = FAMILIES.qwen3.tiny;
export const layered = (config: Config) => ({
  hidden_size: embedding,
  num_hidden_layers: 4,
  vocab_size: vocabulary,
  max_position_embeddings: context,
  ...config,
});

const BERT_NAMES: Names = [
  [/^token_embd$/, "embeddings.word_embeddings"],
  [/^position_embd$/, "embeddings.position_embeddings"],
  [/^token_types$/, "embeddings.token_type_embeddings"],
  [/^token_embd_norm$/, "embeddings.LayerNorm"],
  [/^blk\.(\d+)\.attn_q$/, "encoder.layer.$1.attention.self.query"],
  [/^blk\.(\d+)\.attn_k$/, "encoder.layer.$1.attention.self.key"],
  [/^blk\.(\d+)\.attn_v$/, "encoder.layer.$1.attention.self.value"],
  [/^blk\.(\d+)\.attn_output$/, "encoder.layer.$1.attention.output.dense"],
  [/^blk\.(\d+)\.attn_output_norm$/, "encoder.layer.$1.attention.output.LayerNorm"],
  [/^blk\.(\d+)\.ffn_up$/, "encoder.layer.$1.intermediate.dense"],
  [/^blk\.(\d+)\.ffn_down$/, "encoder.layer.$1.output.dense"],
  [/^blk\.(\d+)\.layer_output_norm$/, "encoder.layer.$1.output.LayerNorm"],
];
const BERT = layered({
  num_attention_heads: 8,
  intermediate_size: 768,
  layer_norm_eps: 1e-12,
  type_vocab_size: 2,
  hidden_act: "gelu",
});

/** Of both of Nomic's encoders. */
const NOMIC_CONFIG: Config = {
  model_type: "nomic_bert",
  n_layer: 4,
  n_embd: embedding,
  n_inner: 768,
  n_head: 4,
  n_positions: context,
  layer_norm_epsilon: 1e-12,
  vocab_size: vocabulary,
  type_vocab_size: 2,
};
const NOMIC_NAMES: Names = [
  [/^token_embd$/, "embeddings.word_embeddings"],
  [/^token_types$/, "embeddings.token_type_embeddings"],
  [/^token_embd_norm$/, "emb_ln"],
  [/^blk\.(\d+)\.attn_qkv$/, "encoder.layers.$1.attn.Wqkv"],
  [/^blk\.(\d+)\.attn_output$/, "encoder.layers.$1.attn.out_proj"],
  [/^blk\.(\d+)\.attn_output_norm$/, "encoder.layers.$1.norm1"],
  [/^blk\.(\d+)\.layer_output_norm$/, "encoder.layers.$1.norm2"],
];

/** Of decoders whose tensors are called as Llama's. */
export const attentionNames = (prefix: string): Names => [
  [/^token_embd$/, `${prefix}embed_tokens`],
  [/^output_norm$/, `${prefix}norm`],
  [/^blk\.(\d+)\.attn_(q|k|v)$/, `${prefix}layers.$1.self_attn.$2_proj`],
  [/^blk\.(\d+)\.attn_output$/, `${prefix}layers.$1.self_attn.o_proj`],
  [/^blk\.(\d+)\.attn_(q|k)_norm$/, `${prefix}layers.$1.self_attn.$2_norm`],
  [/^blk\.(\d+)\.ffn_(gate|up|down)$/, `${prefix}layers.$1.mlp.$2_proj`],
  [/^blk\.(\d+)\.attn_norm$/, `${prefix}layers.$1.input_layernorm`],
];
/** Of Qwen's decoders, dense. */
const QWEN2_TEXT = layered({
  model_type: "qwen2",
  num_attention_heads: 8,
  num_key_value_heads: 2,
  intermediate_size: 768,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  tie_word_embeddings: true,
  use_sliding_window: false,
  sliding_window: 131_072,
});
function qwen(architecture: "qwen2" | "qwen3", prefix: string, config: Config): Published {
  return {
    architecture,
    config,
    names: [
      ...attentionNames(prefix),
      [/^blk\.(\d+)\.ffn_norm$/, `${prefix}layers.$1.post_attention_layernorm`],
    ],
    tokenizer: tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }),
    ids: ["the", [257]],
  };
}

const OLMO2 = layered({
  model_type: "olmo2",
  num_attention_heads: 8,
  num_key_value_heads: 4,
  intermediate_size: 768,
  rms_norm_eps: 1e-6,
  rope_theta: 5e5,
  rope_scaling: null,
  tie_word_embeddings: false,
});
/** Of decoders with norms behind the halves of their layers, and none before them. */
function postNormed(architecture: "olmo2" | "olmo3" | "exaone4", config: Config): Published {
  return {
    architecture,
    config,
    names: [
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.post_attention_norm$/, "model.layers.$1.post_attention_layernorm"],
      [/^blk\.(\d+)\.post_ffw_norm$/, "model.layers.$1.post_feedforward_layernorm"],
    ],
    tokenizer: tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }),
    ids: ["the", [257]],
  };
}

const gemmaNames = (prefix: string): Names => [
  ...attentionNames(prefix),
  [/^blk\.(\d+)\.post_attention_norm$/, `${prefix}layers.$1.post_attention_layernorm`],
  [/^blk\.(\d+)\.ffn_norm$/, `${prefix}layers.$1.pre_feedforward_layernorm`],
  [/^blk\.(\d+)\.post_ffw_norm$/, `${prefix}layers.$1.post_feedforward_layernorm`],
];
const GEMMA4_PREFIX = "model.language_model.";
const GEMMA4_NAMES: Names = [
  ...gemmaNames(GEMMA4_PREFIX),
  [/^per_layer_token_embd$/, `${GEMMA4_PREFIX}embed_tokens_per_layer`],
  [/^per_layer_model_proj$/, `${GEMMA4_PREFIX}per_layer_model_projection`],
  [/^per_layer_proj_norm$/, `${GEMMA4_PREFIX}per_layer_projection_norm`],
  [/^blk\.(\d+)\.inp_gate$/, `${GEMMA4_PREFIX}layers.$1.per_layer_input_gate`],
  [/^blk\.(\d+)\.proj$/, `${GEMMA4_PREFIX}layers.$1.per_layer_projection`],
  [/^blk\.(\d+)\.post_norm$/, `${GEMMA4_PREFIX}layers.$1.post_per_layer_input_norm`],
  [/^blk\.(\d+)\.post_ffw_norm_(1|2)$/, `${GEMMA4_PREFIX}layers.$1.post_feedforward_layernorm_$2`],
  [/^blk\.(\d+)\.pre_ffw_norm_2$/, `${GEMMA4_PREFIX}layers.$1.pre_feedforward_layernorm_2`],
  [/^blk\.(\d+)\.ffn_gate_inp$/, `${GEMMA4_PREFIX}layers.$1.router.proj`],
];
const GEMMA4_TEXT = layered({
  model_type: "gemma4_text",
  num_hidden_layers: 6,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  num_global_key_value_heads: 1,
  head_dim: 64,
  global_head_dim: 128,
  attention_k_eq_v: true,
  sliding_window: 24,
  layer_types: Array.from({ length: 6 }, (_, i) => i % 2 === 1 ? "full_attention" : "sliding_attention"),
  final_logit_softcapping: 30,
  rms_norm_eps: 1e-6,
  hidden_activation: "gelu_pytorch_tanh",
  rope_parameters: {
    full_attention: { rope_type: "proportional", partial_rotary_factor: 0.25, rope_theta: 1e6 },
    sliding_attention: { rope_type: "default", rope_theta: 1e4 },
  },
});
const gemma4 = (config: Config) => ({ model_type: "gemma4", text_config: { ...GEMMA4_TEXT, ...config } });

/** Tensors that are not called as the rest: layers' scales, and experts with each one's gate before its up. */
function gemma4Rest(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  const layer = (i: number) => `${GEMMA4_PREFIX}layers.${i}.`;
  const put = (name: string, { shape, values }: Floats) =>
    tensors.set(name, storeFloats("F32", [...shape], values));
  for (let i = 0; i < 6; i++) {
    put(`${layer(i)}layer_scalar`, floats(`blk.${i}.layer_output_scale.weight`));
    if (!tensors.has(`${layer(i)}router.proj.weight`)) {
      // Published beside it, and never read.
      if (i >= 4) put(`${layer(i)}self_attn.k_proj.weight`, { shape: [2, 3], values: new Float32Array(6) });
      continue;
    }
    put(`${layer(i)}router.scale`, floats(`blk.${i}.ffn_gate_inp.scale`));
    put(`${layer(i)}router.per_expert_scale`, floats(`blk.${i}.ffn_down_exps.scale`));
    put(`${layer(i)}experts.down_proj`, floats(`blk.${i}.ffn_down_exps.weight`));
    const [gate, up] = ["gate", "up"].map((part) => floats(`blk.${i}.ffn_${part}_exps.weight`));
    const [experts, rows, columns] = gate.shape;
    const size = rows * columns;
    const both = new Float32Array(2 * experts * size);
    for (let e = 0; e < experts; e++) {
      both.set(gate.values.subarray(e * size, (e + 1) * size), 2 * e * size);
      both.set(up.values.subarray(e * size, (e + 1) * size), (2 * e + 1) * size);
    }
    put(`${layer(i)}experts.gate_up_proj`, { shape: [experts, 2 * rows, columns], values: both });
  }
}

/** A layer that Puzzle has searched; both parts have all keys. */
function searched(attention: Config, ffn: Config): Config {
  const none = { no_op: false, replace_with_linear: false };
  return {
    attention: { n_heads_in_group: null, ...none, ...attention },
    ffn: { ffn_mult: null, ...none, ...ffn },
  };
}

/** Experts one below the other, each one's second matrix with rows for columns; and the bias that they have in common. */
function nomicExperts(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  for (const i of [1, 3]) {
    const mlp = `encoder.layers.${i}.mlp.experts.`;
    const [up, down] = ["up", "down"].map((part) => floats(`blk.${i}.ffn_${part}_exps.weight`));
    const [experts, width, inner] = down.shape;
    const turned = down.values.map((_, at) => {
      const [expert, column, row] = [
        Math.floor(at / width / inner),
        Math.floor(at / width) % inner,
        at % width,
      ];
      return down.values[(expert * width + row) * inner + column];
    });
    tensors.set(`${mlp}mlp.w1`, storeFloats("F32", [experts * inner, width], up.values));
    tensors.set(`${mlp}mlp.w2`, storeFloats("F32", [experts * inner, width], turned));
    tensors.set(`${mlp}bias`, storeFloats("F32", [width], new Float32Array(width)));
  }
}

export const PUBLISHED: Readonly<Record<string, Published>> = {
  "BERT": {
    architecture: "bert",
    config: { ...BERT, model_type: "bert", max_position_embeddings: 512 },
    names: BERT_NAMES,
    tokenizer: WORD_PIECE,
    ids: ["Ab c", [2, 5, 32, 7, 3]],
  },
  "XLM-RoBERTa": {
    architecture: "bert",
    config: { ...BERT, model_type: "xlm-roberta", max_position_embeddings: 514, pad_token_id: 1 },
    names: BERT_NAMES.map(([ours, theirs]) => [ours, `roberta.${theirs}`] as const),
    tokenizer: UNIGRAM,
    ids: ["  a  b ", [0, 31, 4, 6, 2]],
    change(tensors, floats) {
      const { shape: [rows, columns], values } = floats("position_embd.weight");
      const more = new Float32Array((rows + 2) * columns);
      more.set(values, 2 * columns);
      const name = "roberta.embeddings.position_embeddings.weight";
      tensors.set(name, storeFloats("F32", [rows + 2, columns], more));
    },
  },
  "Nomic's": {
    architecture: "nomic-bert",
    config: {
      ...NOMIC_CONFIG,
      activation_function: "swiglu",
      rotary_emb_base: 1000,
      rotary_emb_fraction: 1,
      qkv_proj_bias: false,
    },
    names: [
      ...NOMIC_NAMES,
      [/^blk\.(\d+)\.ffn_up$/, "encoder.layers.$1.mlp.fc11"],
      [/^blk\.(\d+)\.ffn_gate$/, "encoder.layers.$1.mlp.fc12"],
      [/^blk\.(\d+)\.ffn_down$/, "encoder.layers.$1.mlp.fc2"],
    ],
    tokenizer: WORD_PIECE,
    ids: ["ab", [2, 5, 32, 3]],
  },
  "Nomic's with experts": {
    architecture: "nomic-bert-moe",
    config: {
      ...NOMIC_CONFIG,
      activation_function: "gelu",
      rotary_emb_base: 10_000,
      rotary_emb_fraction: 1,
      qkv_proj_bias: true,
      mlp_fc1_bias: true,
      mlp_fc2_bias: true,
      moe_every_n_layers: 2,
      moe_top_k: 2,
      num_experts: 6,
      num_shared_experts: 0,
      moe_normalize_expert_weights: false,
      expert_choice_router: false,
    },
    names: [
      ...NOMIC_NAMES,
      [/^blk\.(\d+)\.ffn_up$/, "encoder.layers.$1.mlp.fc1"],
      [/^blk\.(\d+)\.ffn_down$/, "encoder.layers.$1.mlp.fc2"],
      [/^blk\.(\d+)\.ffn_gate_inp$/, "encoder.layers.$1.mlp.router.layer"],
    ],
    tokenizer: UNIGRAM,
    ids: ["  a  b ", [0, 31, 4, 6, 2]],
    change: nomicExperts,
  },
  "ModernBERT": {
    architecture: "modern-bert",
    config: layered({
      model_type: "modernbert",
      num_attention_heads: 8,
      intermediate_size: 768,
      norm_eps: 1e-12,
      local_attention: 24,
      global_attn_every_n_layers: 3,
      hidden_activation: "gelu",
      global_rope_theta: 160_000,
      local_rope_theta: 10_000,
      attention_bias: false,
    }),
    names: [
      [/^token_embd$/, "model.embeddings.tok_embeddings"],
      [/^token_embd_norm$/, "model.embeddings.norm"],
      [/^output_norm$/, "model.final_norm"],
      [/^blk\.(\d+)\.attn_norm$/, "model.layers.$1.attn_norm"],
      [/^blk\.(\d+)\.attn_qkv$/, "model.layers.$1.attn.Wqkv"],
      [/^blk\.(\d+)\.attn_output$/, "model.layers.$1.attn.Wo"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.mlp_norm"],
      [/^blk\.(\d+)\.ffn_up$/, "model.layers.$1.mlp.Wi"],
      [/^blk\.(\d+)\.ffn_down$/, "model.layers.$1.mlp.Wo"],
    ],
    tokenizer: MODERN,
    ids: ["ab", [257, 97, 98, 258]],
  },
  "GLM-4": {
    architecture: "glm4",
    config: layered({
      model_type: "glm4",
      num_attention_heads: 8,
      num_key_value_heads: 2,
      head_dim: 32,
      intermediate_size: 768,
      hidden_act: "silu",
      attention_bias: true,
      partial_rotary_factor: 0.5,
      rope_theta: 1e4,
      rms_norm_eps: 1e-6,
    }),
    names: [
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.post_attention_norm$/, "model.layers.$1.post_self_attn_layernorm"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
      [/^blk\.(\d+)\.post_ffw_norm$/, "model.layers.$1.post_mlp_layernorm"],
    ],
    change(tensors) {
      for (let i = 0; i < 4; i++) {
        const mlp = `model.layers.${i}.mlp.`;
        tensors.set(`${mlp}gate_up_proj.weight`, tensors.get(`${mlp}up_proj.weight`)!);
        tensors.delete(`${mlp}up_proj.weight`);
      }
    },
    tokenizer: tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }),
    ids: ["the", [257]],
  },
  "Gemma 2": {
    architecture: "gemma2",
    config: layered({
      model_type: "gemma2",
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 64,
      intermediate_size: 768,
      hidden_act: "gelu_pytorch_tanh",
      hidden_activation: "gelu_pytorch_tanh",
      query_pre_attn_scalar: 64,
      sliding_window: 24,
      attn_logit_softcapping: 2,
      final_logit_softcapping: 20,
      rms_norm_eps: 1e-6,
    }),
    names: gemmaNames("model."),
    tokenizer: GEMMA,
    ids: ["a a", [2, 263, 289]],
    shiftedNorms: true,
  },
  "EmbeddingGemma": {
    architecture: "gemma-embedding",
    config: layered({
      model_type: "gemma3_text",
      use_bidirectional_attention: true,
      num_hidden_layers: 7,
      num_attention_heads: 4,
      num_key_value_heads: 1,
      head_dim: 64,
      intermediate_size: 768,
      query_pre_attn_scalar: 64,
      sliding_window: 24,
      rms_norm_eps: 1e-6,
    }),
    names: gemmaNames(""),
    tokenizer: GEMMA,
    ids: ["a a", [2, 263, 289]],
    shiftedNorms: true,
    dense: true,
  },
  "Gemma 4": {
    architecture: "gemma4",
    config: gemma4({
      intermediate_size: 512,
      num_kv_shared_layers: 2,
      hidden_size_per_layer_input: 256,
      vocab_size_per_layer_input: vocabulary,
      use_double_wide_mlp: true,
    }),
    names: GEMMA4_NAMES,
    tokenizer: GEMMA,
    ids: ["a aé", [2, 263, 289, 6 + 0xc3, 6 + 0xa9]],
    change: gemma4Rest,
  },
  "Gemma 4 with experts": {
    architecture: "gemma4_moe",
    config: gemma4({
      intermediate_size: 256,
      enable_moe_block: true,
      num_experts: 12,
      top_k_experts: 5,
      moe_intermediate_size: 256,
    }),
    names: GEMMA4_NAMES,
    tokenizer: GEMMA,
    ids: ["a", [2, 263]],
    change: gemma4Rest,
  },
  "Llama Nemotron": {
    architecture: "deci",
    config: layered({
      model_type: "nemotron-nas",
      num_hidden_layers: 6,
      num_attention_heads: 8,
      num_key_value_heads: null,
      head_dim: 32,
      intermediate_size: null,
      rms_norm_eps: 1e-6,
      rope_theta: 5e5,
      tie_word_embeddings: false,
      rope_scaling: {
        rope_type: "llama3",
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 8192,
      },
      block_configs: [
        searched({ n_heads_in_group: 2 }, { ffn_mult: 4.5 }),
        searched({ replace_with_linear: true }, { ffn_mult: 1.5 }),
        searched({ no_op: true }, { ffn_mult: 3 }),
        searched({ n_heads_in_group: 4 }, { ffn_mult: 2.9 }),
        searched({ no_op: true }, { no_op: true }),
        searched({ n_heads_in_group: 2 }, { ffn_mult: 4.5 }),
      ],
    }),
    names: [
      // A layer's only matrix of attention.
      [/^blk\.1\.attn_output$/, "model.layers.1.self_attn.linear_attn"],
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }),
    ids: ["the", [257]],
    halves: { headDim: 32 },
    ownFactors: true,
  },
  "Ministral 3": {
    architecture: "mistral3",
    config: {
      model_type: "mistral3",
      text_config: layered({
        model_type: "ministral3",
        num_attention_heads: 8,
        num_key_value_heads: 2,
        head_dim: 32,
        intermediate_size: 768,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
        sliding_window: null,
        rope_parameters: {
          rope_type: "yarn",
          type: "yarn",
          rope_theta: 1e6,
          factor: 16,
          original_max_position_embeddings: 64,
          beta_fast: 32,
          beta_slow: 1,
          mscale: 1,
          mscale_all_dim: 1,
          llama_4_scaling_beta: 0.1,
        },
      }),
    },
    names: [
      ...attentionNames("language_model.model."),
      [/^output$/, "language_model.lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "language_model.model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }),
    ids: ["the", [257]],
    halves: { headDim: 32 },
  },
  "OLMo 2": postNormed("olmo2", OLMO2),
  "OLMo 3": postNormed("olmo3", {
    ...OLMO2,
    model_type: "olmo3",
    num_hidden_layers: 5,
    num_key_value_heads: 2,
    sliding_window: 40,
    layer_types: Array.from({ length: 5 }, (_, i) => i === 3 ? "full_attention" : "sliding_attention"),
    rope_scaling: {
      rope_type: "yarn",
      factor: 8,
      original_max_position_embeddings: context / 8,
      beta_fast: 32,
      beta_slow: 1,
      attention_factor: 1.2079441541679836,
    },
  }),
  "EXAONE 4": {
    ...postNormed("exaone4", {
      ...OLMO2,
      model_type: "exaone4",
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 64,
      rope_theta: 1e6,
      tie_word_embeddings: true,
      sliding_window: null,
      sliding_window_pattern: null,
      layer_types: Array(4).fill("full_attention"),
      rope_scaling: {
        rope_type: "llama3",
        factor: 16,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 8192,
      },
    }),
    ownFactors: true,
  },
  "Qwen2.5": qwen("qwen2", "model.", QWEN2_TEXT),
  "Qwen2.5-VL": {
    ...qwen("qwen2", "model.", {
      ...QWEN2_TEXT,
      model_type: "qwen2_5_vl",
      rope_scaling: { type: "mrope", mrope_section: [6, 5, 5] },
      vision_config: { model_type: "qwen2_5_vl" },
    }),
    becomes: "qwen2vl",
  },
  "Qwen3-VL": {
    ...qwen("qwen3", "model.language_model.", {
      model_type: "qwen3_vl",
      text_config: {
        ...QWEN2_TEXT,
        model_type: "qwen3_vl_text",
        num_key_value_heads: 4,
        head_dim: 64,
        attention_bias: false,
        rope_scaling: { rope_type: "default", mrope_interleaved: true, mrope_section: [12, 10, 10] },
      },
    }),
    becomes: "qwen3vl",
  },
};
