/** Seeded decoders of Llama's kind as their makers would publish them. */
import { storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import { attentionNames, type Config, context, layered, type Published } from "./model.ts";

/** Llama 3's scaling of rotary positions. */
const LLAMA3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};

/** config.json of Qwen's dense decoders. */
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
    tokenizer: tokenizerOf("qwen3"),
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
/** Returns a decoder with norms after the attention and feed-forward blocks, and none before them. */
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
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
  };
}

/** Returns the configuration of a layer found by NVIDIA's Puzzle search. Attention and feed-forward have all keys. */
function searched(attention: Config, ffn: Config): Config {
  const none = { no_op: false, replace_with_linear: false };
  return {
    attention: { n_heads_in_group: null, ...none, ...attention },
    ffn: { ffn_mult: null, ...none, ...ffn },
  };
}

export const DECODERS = {
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
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
  },
  // The seeded model's rotary base is 10,000 times alpha^(64/62).
  Hunyuan: {
    architecture: "hunyuan-dense",
    config: layered({
      model_type: "hunyuan_v1_dense",
      num_attention_heads: 8,
      num_key_value_heads: 2,
      head_dim: 64,
      intermediate_size: 768,
      rms_norm_eps: 1e-6,
      use_qk_norm: true,
      use_cla: false,
      rope_theta: 1e4,
      rope_scaling: { type: "dynamic", alpha: 100 ** (62 / 64), factor: 1, beta_fast: 32, beta_slow: 1 },
      tie_word_embeddings: true,
    }),
    names: [
      [/^blk\.(\d+)\.attn_q_norm$/, "model.layers.$1.self_attn.query_layernorm"],
      [/^blk\.(\d+)\.attn_k_norm$/, "model.layers.$1.self_attn.key_layernorm"],
      ...attentionNames("model."),
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
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
      rope_scaling: LLAMA3,
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
      // The only attention matrix of a layer with linear attention.
      [/^blk\.1\.attn_output$/, "model.layers.1.self_attn.linear_attn"],
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tokenizerOf("qwen3"),
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
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
    halves: { headDim: 32 },
  },
  SmolVLM: {
    architecture: "llama",
    config: {
      model_type: "smolvlm",
      tie_word_embeddings: false,
      text_config: layered({
        model_type: "llama",
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 32,
        intermediate_size: 768,
        rms_norm_eps: 1e-6,
        rope_theta: 5e5,
        rope_scaling: LLAMA3,
        qk_layer_norms: false,
        use_resampler: false,
      }),
    },
    names: [
      ...attentionNames("model.text_model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.text_model.layers.$1.post_attention_layernorm"],
    ],
    change: (tensors) =>
      void tensors.set(
        "model.connector.modality_projection.proj.weight",
        storeFloats("F32", [1], new Float32Array(1)),
      ),
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
    halves: { headDim: 32 },
    ownFactors: true,
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
  "StarCoder2": {
    architecture: "starcoder2",
    config: layered({
      model_type: "starcoder2",
      num_attention_heads: 8,
      num_key_value_heads: 2,
      intermediate_size: 768,
      hidden_act: "gelu_pytorch_tanh",
      norm_epsilon: 1e-5,
      rope_theta: 1e5,
      sliding_window: 40,
      use_bias: true,
    }),
    names: [
      [/^blk\.(\d+)\.ffn_up$/, "model.layers.$1.mlp.c_fc"],
      [/^blk\.(\d+)\.ffn_down$/, "model.layers.$1.mlp.c_proj"],
      ...attentionNames("model."),
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
  },
  "Nemotron-Mini": {
    architecture: "nemotron",
    config: layered({
      model_type: "nemotron",
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 64,
      intermediate_size: 768,
      hidden_act: "relu2",
      norm_eps: 1e-5,
      partial_rotary_factor: 0.5,
      rope_theta: 1e4,
      attention_bias: false,
      mlp_bias: false,
      tie_word_embeddings: false,
    }),
    names: [
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
    shiftedNorms: true,
  },
  Maincoder: {
    architecture: "maincoder",
    config: layered({
      model_type: "maincoder",
      num_attention_heads: 8,
      num_key_value_heads: 2,
      head_dim: 96,
      intermediate_size: 768,
      intermediate_size_mlp: 768,
      rms_norm_eps: 1e-6,
      use_qk_norm: true,
      rope_scaling: null,
      rope_theta: 1e6,
      tie_word_embeddings: true,
    }),
    names: [
      [/^blk\.(\d+)\.ffn_(gate|up|down)$/, "model.layers.$1.feed_forward.$2_proj"],
      ...attentionNames("model."),
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
  },
  "Nanbeige 4.2": {
    architecture: "nanbeige",
    config: layered({
      model_type: "nanbeige",
      num_hidden_layers: 3,
      num_attention_heads: 8,
      num_key_value_heads: 2,
      head_dim: 64,
      intermediate_size: 768,
      hidden_act: "silu",
      rms_norm_eps: 1e-6,
      rope_theta: 5e4,
      rope_scaling: null,
      tie_word_embeddings: false,
      num_loops: 3,
      skip_loop_final_norm: false,
    }),
    names: [
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
    halves: { headDim: 64 },
  },
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
      vision_config: { deepstack_visual_indexes: [0, 2] },
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
} satisfies Record<string, Published>;
