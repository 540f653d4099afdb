/** Seeded mixtures of experts as their makers would publish them. */
import { type StoredTensor, storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import { attentionNames, context, type Floats, layered, moduleEach, type Published } from "./model.ts";

const COMMON = { rms_norm_eps: 1e-6, hidden_act: "silu" };
const REST = {
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
} as const;

export const namesOf = (prefix: string): Published["names"] => [
  ...attentionNames(prefix),
  [/^output$/, "lm_head"],
  [/^blk\.(\d+)\.(ffn|post_attention)_norm$/, `${prefix}layers.$1.post_attention_layernorm`],
  [/^blk\.(\d+)\.ffn_gate_inp$/, `${prefix}layers.$1.mlp.gate`],
  [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, `${prefix}layers.$1.mlp.shared_experts.$2_proj`],
];

/**
 * Returns the changes for sigmoid-weighted experts in all layers except the first. `bias` names the bias of the choice.
 */
export const sigmoidExperts = (
  bias: string,
  { layers = 4, ours = "exp_probs_b.bias" } = {},
): Published["change"] =>
(tensors, floats) => {
  moduleEach(tensors, floats, 1, layers);
  for (let i = 1; i < layers; i++) {
    const { shape, values } = floats(`blk.${i}.${ours}`);
    tensors.set(`model.layers.${i}.mlp.${bias}`, storeFloats("F32", [...shape], values));
  }
};

export const OLMOE: Published = {
  architecture: "olmoe",
  config: layered({
    ...COMMON,
    model_type: "olmoe",
    num_attention_heads: 8,
    num_key_value_heads: 8,
    intermediate_size: 256,
    num_experts: 12,
    num_experts_per_tok: 3,
    norm_topk_prob: false,
    clip_qkv: null,
    attention_bias: false,
    rope_scaling: null,
    rope_theta: 1e4,
    tie_word_embeddings: false,
  }),
  names: namesOf("model."),
  change: moduleEach,
  ...REST,
};

export const GLM45: Published = {
  architecture: "glm4moe",
  config: layered({
    ...COMMON,
    model_type: "glm4_moe",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 768,
    attention_bias: true,
    use_qk_norm: true,
    partial_rotary_factor: 0.5,
    rope_scaling: null,
    rope_theta: 1e6,
    n_routed_experts: 12,
    num_experts_per_tok: 3,
    moe_intermediate_size: 256,
    n_shared_experts: 2,
    first_k_dense_replace: 1,
    n_group: 1,
    topk_group: 1,
    norm_topk_prob: true,
    routed_scaling_factor: 2.5,
    num_nextn_predict_layers: 1,
    tie_word_embeddings: false,
  }),
  names: namesOf("model."),
  change: sigmoidExperts("gate.e_score_correction_bias"),
  tokenizer: tokenizerOf("llama"),
  ids: ["the", [257]],
};

const QWEN3_HEADS = {
  ...COMMON,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 64,
  intermediate_size: 768,
  moe_intermediate_size: 256,
  num_shared_experts: 2,
  rope_scaling: null,
  tie_word_embeddings: false,
};

export const K_EXAONE: Published = {
  architecture: "exaone-moe",
  config: layered({
    ...QWEN3_HEADS,
    model_type: "exaone_moe",
    num_hidden_layers: 5,
    rope_theta: 1e6,
    sliding_window: 40,
    sliding_window_pattern: "LLLG",
    layer_types: Array.from({ length: 5 }, (_, i) => i === 3 ? "full_attention" : "sliding_attention"),
    num_experts: 8,
    num_experts_per_tok: 2,
    first_k_dense_replace: 1,
    n_group: 1,
    topk_group: 1,
    norm_topk_prob: true,
    routed_scaling_factor: 1.25,
    num_nextn_predict_layers: 1,
  }),
  names: namesOf("model."),
  change: sigmoidExperts("e_score_correction_bias", { layers: 5 }),
  ...REST,
};

export const DOTS1: Published = {
  architecture: "dots1",
  config: layered({
    ...COMMON,
    model_type: "dots1",
    num_attention_heads: 4,
    num_key_value_heads: 4,
    head_dim: 64,
    intermediate_size: 768,
    attention_bias: false,
    rope_scaling: null,
    rope_theta: 1e7,
    n_routed_experts: 12,
    num_experts_per_tok: 3,
    moe_intermediate_size: 256,
    n_shared_experts: 2,
    first_k_dense_replace: 1,
    n_group: 1,
    topk_group: 1,
    norm_topk_prob: true,
    routed_scaling_factor: 2.5,
    sliding_window: 4096,
    max_window_layers: 4,
    tie_word_embeddings: false,
  }),
  names: namesOf("model."),
  change: sigmoidExperts("gate.e_score_correction_bias"),
  ...REST,
};

export const HY3: Published = {
  architecture: "hy_v3",
  config: layered({
    ...QWEN3_HEADS,
    model_type: "hy_v3",
    rope_theta: 1.115884e7,
    num_experts: 12,
    num_experts_per_tok: 3,
    mlp_layer_types: ["dense", "sparse", "sparse", "sparse"],
    qk_norm: true,
    route_norm: true,
    router_scaling_factor: 2.826,
  }),
  names: [
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.mlp.router.gate"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_mlp.$2_proj"],
    ...namesOf("model."),
  ],
  change: sigmoidExperts("expert_bias", { ours: "exp_probs_b" }),
  ...REST,
};

export const DEEPSEEK_MOE: Published = {
  architecture: "deepseek",
  config: layered({
    ...COMMON,
    model_type: "deepseek",
    num_attention_heads: 8,
    num_key_value_heads: 4,
    intermediate_size: 768,
    attention_bias: false,
    rope_scaling: null,
    rope_theta: 1e4,
    n_routed_experts: 12,
    num_experts_per_tok: 3,
    moe_intermediate_size: 256,
    n_shared_experts: 2,
    first_k_dense_replace: 1,
    moe_layer_freq: 1,
    scoring_func: "softmax",
    norm_topk_prob: false,
    routed_scaling_factor: 1.5,
    tie_word_embeddings: false,
  }),
  names: namesOf("model."),
  change: (tensors, floats) => moduleEach(tensors, floats, 1),
  halves: { headDim: 32 },
  ...REST,
};

export const HUNYUAN_A13B: Published = {
  architecture: "hunyuan-moe",
  config: layered({
    ...COMMON,
    model_type: "hunyuan_v1_moe",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 512,
    moe_intermediate_size: [256, 256, 256, 256],
    num_experts: 12,
    moe_topk: [3, 3, 3, 3],
    num_shared_expert: [1, 1, 1, 1],
    use_qk_norm: true,
    use_cla: false,
    rope_theta: 1e4,
    rope_scaling: { type: "dynamic", alpha: 100 ** (62 / 64), factor: 1, beta_fast: 32, beta_slow: 1 },
    tie_word_embeddings: true,
  }),
  names: [
    [/^blk\.(\d+)\.attn_q_norm$/, "model.layers.$1.self_attn.query_layernorm"],
    [/^blk\.(\d+)\.attn_k_norm$/, "model.layers.$1.self_attn.key_layernorm"],
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.mlp.gate.wg"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_mlp.$2_proj"],
    ...namesOf("model."),
  ],
  change: moduleEach,
  ...REST,
};

export const MELLUM2: Published = {
  architecture: "mellum",
  config: layered({
    ...COMMON,
    model_type: "mellum",
    num_hidden_layers: 5,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 64,
    intermediate_size: 768,
    attention_bias: false,
    layer_types: Array.from({ length: 5 }, (_, i) => i === 3 ? "full_attention" : "sliding_attention"),
    mlp_layer_types: Array(5).fill("sparse"),
    sliding_window: 40,
    rope_parameters: {
      full_attention: {
        rope_type: "yarn",
        rope_theta: 5e5,
        factor: 8,
        original_max_position_embeddings: context / 8,
        beta_fast: 32,
        beta_slow: 1,
      },
      sliding_attention: { rope_type: "default", rope_theta: 5e5 },
    },
    num_experts: 12,
    num_experts_per_tok: 3,
    moe_intermediate_size: 256,
    norm_topk_prob: true,
    tie_word_embeddings: false,
  }),
  names: namesOf("model."),
  change: (tensors, floats) => moduleEach(tensors, floats, 0, 5),
  ...REST,
};

export const MINIMAX_M2: Published = {
  architecture: "minimax-m2",
  config: layered({
    ...COMMON,
    model_type: "minimax_m2",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    rotary_dim: 32,
    rope_theta: 5e6,
    intermediate_size: 256,
    attn_type_list: [1, 1, 1, 1],
    num_local_experts: 12,
    num_experts_per_tok: 3,
    scoring_func: "sigmoid",
    use_routing_bias: true,
    use_qk_norm: true,
    qk_norm_type: "per_layer",
    shared_intermediate_size: 0,
    tie_word_embeddings: false,
  }),
  names: [[/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.block_sparse_moe.gate"], ...namesOf("model.")],
  change(tensors, floats) {
    moduleEach(tensors, floats);
    const parts: Readonly<Record<string, string>> = { gate_proj: "w1", up_proj: "w3", down_proj: "w2" };
    for (const [name, tensor] of [...tensors]) {
      const [, layer, expert, part] = /^model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)/.exec(name) ?? [];
      if (part === undefined) continue;
      tensors.delete(name);
      const module = `model.layers.${layer}.block_sparse_moe.experts.${expert}.${parts[part]}`;
      tensors.set(`${module}.weight`, tensor);
    }
    for (let i = 0; i < 4; i++) {
      const { shape, values } = floats(`blk.${i}.exp_probs_b.bias`);
      const bias = `model.layers.${i}.block_sparse_moe.e_score_correction_bias`;
      tensors.set(bias, storeFloats("F32", [...shape], values));
    }
  },
  ...REST,
};

export const TRINITY: Published = {
  architecture: "afmoe",
  config: layered({
    ...COMMON,
    model_type: "afmoe",
    num_hidden_layers: 5,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 768,
    attention_bias: false,
    rope_scaling: null,
    rope_theta: 1e4,
    global_attn_every_n_layers: 4,
    layer_types: Array.from({ length: 5 }, (_, i) => i === 3 ? "full_attention" : "sliding_attention"),
    sliding_window: 40,
    mup_enabled: true,
    num_experts: 12,
    num_experts_per_tok: 3,
    num_shared_experts: 2,
    num_dense_layers: 2,
    moe_intermediate_size: 256,
    n_group: 1,
    score_func: "sigmoid",
    route_norm: true,
    route_scale: 2.5,
    tie_word_embeddings: false,
  }),
  names: [
    [/^blk\.(\d+)\.attn_gate$/, "model.layers.$1.self_attn.gate_proj"],
    [/^blk\.(\d+)\.post_attention_norm$/, "model.layers.$1.post_attention_layernorm"],
    [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.pre_mlp_layernorm"],
    [/^blk\.(\d+)\.post_ffw_norm$/, "model.layers.$1.post_mlp_layernorm"],
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.mlp.router.gate"],
    ...namesOf("model."),
  ],
  change(tensors, floats) {
    moduleEach(tensors, floats, 2, 5);
    for (let i = 2; i < 5; i++) {
      const { shape, values } = floats(`blk.${i}.exp_probs_b.bias`);
      tensors.set(`model.layers.${i}.mlp.expert_bias`, storeFloats("F32", [...shape], values));
    }
  },
  ...REST,
};

export const LING2: Published = {
  architecture: "bailingmoe2",
  config: layered({
    ...COMMON,
    model_type: "bailing_moe",
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 768,
    use_bias: false,
    use_qkv_bias: false,
    use_qk_norm: true,
    partial_rotary_factor: 0.5,
    rope_scaling: null,
    rope_theta: 6e5,
    score_function: "sigmoid",
    num_experts: 16,
    num_experts_per_tok: 5,
    n_group: 4,
    topk_group: 3,
    norm_topk_prob: true,
    routed_scaling_factor: 2.5,
    moe_intermediate_size: 256,
    num_shared_experts: 1,
    moe_shared_expert_intermediate_size: 512,
    first_k_dense_replace: 1,
    num_nextn_predict_layers: 0,
    tie_word_embeddings: false,
  }),
  names: [
    [/^token_embd$/, "model.word_embeddings"],
    [/^blk\.(\d+)\.attn_qkv$/, "model.layers.$1.attention.query_key_value"],
    [/^blk\.(\d+)\.attn_output$/, "model.layers.$1.attention.dense"],
    [/^blk\.(\d+)\.attn_q_norm$/, "model.layers.$1.attention.query_layernorm"],
    [/^blk\.(\d+)\.attn_k_norm$/, "model.layers.$1.attention.key_layernorm"],
    ...namesOf("model."),
  ],
  change: sigmoidExperts("gate.expert_bias"),
  ...REST,
};

export const QWEN2_MOE: Published = {
  architecture: "qwen2moe",
  config: layered({
    ...COMMON,
    model_type: "qwen2_moe",
    num_attention_heads: 8,
    num_key_value_heads: 4,
    intermediate_size: 768,
    moe_intermediate_size: 256,
    shared_expert_intermediate_size: 512,
    num_experts: 12,
    num_experts_per_tok: 3,
    norm_topk_prob: false,
    decoder_sparse_step: 1,
    use_sliding_window: false,
    rope_theta: 1e6,
    tie_word_embeddings: false,
  }),
  names: [
    [/^blk\.(\d+)\.ffn_gate_inp_shexp$/, "model.layers.$1.mlp.shared_expert_gate"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_expert.$2_proj"],
    ...namesOf("model."),
  ],
  change: moduleEach,
  ...REST,
};

/** Writes one tensor for all experts, with each expert's gate above its up matrix. */
function graniteExperts(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  const joined = (gate: Floats, up: Floats): StoredTensor => {
    const [rows, columns] = gate.shape.slice(-2);
    const size = rows * columns;
    const count = gate.values.length / size;
    const values = new Float32Array(2 * gate.values.length);
    for (let e = 0; e < count; e++) {
      values.set(gate.values.subarray(e * size, (e + 1) * size), 2 * e * size);
      values.set(up.values.subarray(e * size, (e + 1) * size), (2 * e + 1) * size);
    }
    return storeFloats("F32", [...gate.shape.slice(0, -2), 2 * rows, columns], values);
  };
  for (let i = 0; i < 4; i++) {
    for (const [part, module] of [["exps", "block_sparse_moe"], ["shexp", "shared_mlp"]]) {
      const own = (name: string) => floats(`blk.${i}.ffn_${name}_${part}.weight`);
      const from = `model.layers.${i}.${module}.`;
      tensors.set(`${from}input_linear.weight`, joined(own("gate"), own("up")));
      const { shape, values } = own("down");
      tensors.set(`${from}output_linear.weight`, storeFloats("F32", [...shape], values));
    }
  }
}

export const GRANITE_MOE: Published = {
  architecture: "granitemoe",
  config: layered({
    ...COMMON,
    model_type: "granitemoeshared",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    intermediate_size: 256,
    shared_intermediate_size: 512,
    num_local_experts: 10,
    num_experts_per_tok: 3,
    attention_bias: false,
    rope_scaling: null,
    rope_theta: 1e4,
    embedding_multiplier: 12,
    residual_multiplier: 0.22,
    attention_multiplier: 1 / 32,
    logits_scaling: 8,
    tie_word_embeddings: true,
  }),
  names: [
    ...attentionNames("model."),
    [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.block_sparse_moe.router.layer"],
  ],
  change: graniteExperts,
  halves: { headDim: 32 },
  ...REST,
};

/** The tensor of attention sinks has no `.weight` in its name. */
export const GRANITE_SWA: Published = {
  architecture: "granite_swa",
  config: layered({
    ...COMMON,
    model_type: "granite_swa",
    num_hidden_layers: 6,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    intermediate_size: 768,
    sliding_window: 40,
    layer_rope_theta: [0, 1e4, 1e4, 1e4, 0, 1e4],
    rope_parameters: { rope_type: "default", rope_theta: 1e4 },
    embedding_multiplier: 3,
    residual_multiplier: 0.7,
    attention_multiplier: 0.5,
    logits_scaling: 0.8,
    tie_word_embeddings: true,
  }),
  names: namesOf("model."),
  change(tensors, floats) {
    for (let i = 0; i < 6; i++) {
      const { shape, values } = floats(`blk.${i}.attn_sinks.weight`);
      tensors.set(`model.layers.${i}.self_attn.sinks`, storeFloats("F32", [...shape], values));
    }
  },
  halves: { headDim: 32 },
  ...REST,
};

/** Writes the experts' matrices transposed, with gate and up side by side. */
export function turnedExperts(
  tensors: Map<string, StoredTensor>,
  floats: (name: string) => Floats,
  layers: readonly number[] = [0, 1, 2, 3],
  experts = (layer: number) => `model.language_model.layers.${layer}.mlp.experts.`,
): void {
  const turned = (parts: readonly Floats[]): StoredTensor => {
    const [experts, rows, columns] = parts[0].shape;
    const width = rows * parts.length;
    const values = new Float32Array(experts * columns * width);
    for (const [part, { values: from }] of parts.entries()) {
      for (let at = 0; at < from.length; at++) {
        const [column, row] = [at % columns, Math.floor(at / columns) % rows];
        const expert = Math.floor(at / columns / rows);
        values[(expert * columns + column) * width + part * rows + row] = from[at];
      }
    }
    return storeFloats("F32", [experts, columns, width], values);
  };
  for (const i of layers) {
    const own = (part: string) => floats(`blk.${i}.ffn_${part}_exps.weight`);
    const from = experts(i);
    tensors.set(`${from}gate_up_proj`, turned([own("gate"), own("up")]));
    tensors.set(`${from}down_proj`, turned([own("down")]));
  }
}

export const QWEN3_VL_MOE: Published = {
  architecture: "qwen3moe",
  becomes: "qwen3vlmoe",
  config: {
    model_type: "qwen3_vl_moe",
    tie_word_embeddings: true,
    text_config: layered({
      ...COMMON,
      model_type: "qwen3_vl_moe_text",
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 64,
      intermediate_size: 768,
      num_experts: 12,
      num_experts_per_tok: 3,
      moe_intermediate_size: 256,
      norm_topk_prob: true,
      decoder_sparse_step: 1,
      mlp_only_layers: [],
      rope_scaling: { rope_type: "default", mrope_interleaved: true, mrope_section: [12, 10, 10] },
      rope_theta: 1e6,
    }),
  },
  names: namesOf("model.language_model."),
  change: turnedExperts,
  ...REST,
};
