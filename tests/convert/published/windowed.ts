/**
 * Seeded mixtures of experts in the layout of published checkpoints: Laguna, Step 3.5, MiMo V2 Flash, SmallThinker,
 * MiniMax M3 and Llama 4.
 */
import { storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import { namesOf, sigmoidExperts, turnedExperts } from "./mixtures.ts";
import { context, type Floats, layered, moduleEach, type Published } from "./model.ts";

const REST = {
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
} as const;
const COMMON = {
  hidden_act: "silu",
  rms_norm_eps: 1e-6,
  num_hidden_layers: 5,
  intermediate_size: 768,
  moe_intermediate_size: 256,
  attention_bias: false,
  tie_word_embeddings: false,
};

const stored = ({ shape, values }: Floats) => storeFloats("F32", [...shape], values);
/** Returns the kinds of five layers: `every` for layers 0 and 4, `others` for the other three. */
const kinds = <Kind>(every: Kind, others: Kind) =>
  Array.from({ length: 5 }, (_, i) => i % 4 === 0 ? every : others);

export const LAGUNA: Published = {
  architecture: "laguna",
  config: layered({
    ...COMMON,
    model_type: "laguna",
    num_attention_heads: 4,
    num_attention_heads_per_layer: kinds(4, 8),
    num_key_value_heads: 2,
    head_dim: 64,
    gating: true,
    num_experts: 8,
    num_experts_per_tok: 2,
    shared_expert_intermediate_size: 256,
    moe_routed_scaling_factor: 1.25,
    mlp_layer_types: ["dense", ...Array(4).fill("sparse")],
    layer_types: kinds("full_attention", "sliding_attention"),
    sliding_window: 40,
    rope_parameters: {
      full_attention: {
        rope_type: "yarn",
        rope_theta: 5e5,
        factor: 8,
        original_max_position_embeddings: context / 8,
        partial_rotary_factor: 0.5,
      },
      sliding_attention: { rope_type: "default", rope_theta: 1e4, partial_rotary_factor: 1 },
    },
  }),
  names: [
    [/^blk\.(\d+)\.attn_gate$/, "model.layers.$1.self_attn.g_proj"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_expert.$2_proj"],
    ...namesOf("model."),
  ],
  change: sigmoidExperts("experts.e_score_correction_bias", { layers: 5 }),
  ...REST,
};

export const MIMO2: Published = {
  architecture: "mimo2",
  config: layered({
    ...COMMON,
    model_type: "mimo_v2_flash",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    swa_num_key_value_heads: 4,
    head_dim: 96,
    v_head_dim: 64,
    layernorm_epsilon: 1e-6,
    partial_rotary_factor: 0.334,
    rope_theta: 5e6,
    swa_rope_theta: 1e4,
    hybrid_layer_pattern: kinds(0, 1),
    moe_layer_freq: [0, 1, 1, 1, 1],
    sliding_window_size: 39,
    attention_value_scale: 0.707,
    n_routed_experts: 12,
    num_experts_per_tok: 3,
    n_group: 1,
    topk_group: 1,
    norm_topk_prob: true,
    routed_scaling_factor: null,
  }),
  names: namesOf("model."),
  change(tensors, floats) {
    sigmoidExperts("gate.e_score_correction_bias", { layers: 5 })!(tensors, floats);
    for (const i of [1, 2, 3]) {
      tensors.set(
        `model.layers.${i}.self_attn.attention_sink_bias`,
        stored(floats(`blk.${i}.attn_sinks.weight`)),
      );
    }
  },
  ...REST,
};

const M3 = "language_model.model.";
const M3_PARTS = { gate: "w1", up: "w3", down: "w2" };

export const MINIMAX_M3: Published = {
  architecture: "minimax-m3",
  config: {
    model_type: "minimax_m3_vl",
    text_config: layered({
      ...COMMON,
      num_hidden_layers: 2,
      hidden_act: "swigluoai",
      num_attention_heads: 8,
      num_key_value_heads: 2,
      head_dim: 64,
      rotary_dim: 32,
      rope_theta: 5e6,
      intermediate_size: 256,
      dense_intermediate_size: 768,
      shared_intermediate_size: 256,
      n_shared_experts: 1,
      num_local_experts: 8,
      num_experts_per_tok: 2,
      routed_scaling_factor: 1.25,
      moe_layer_freq: [0, 1],
      sparse_attention_config: {
        sparse_attention_freq: [0, 1],
        sparse_num_index_heads: 2,
        sparse_index_dim: 64,
        sparse_topk_blocks: 2,
        sparse_block_size: 32,
        sparse_local_block: 1,
      },
    }),
  },
  names: [
    [/^output$/, "language_model.lm_head"],
    [/^blk\.(\d+)\.ffn_gate_inp$/, `${M3}layers.$1.block_sparse_moe.gate`],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, `${M3}layers.$1.block_sparse_moe.shared_experts.$2_proj`],
    [/^blk\.(\d+)\.indexer\.([qk])_(proj|norm)$/, `${M3}layers.$1.self_attn.index_$2_$3`],
    ...namesOf(M3),
  ],
  shiftedNorms: true,
  change(tensors, floats) {
    const moe = `${M3}layers.1.block_sparse_moe.`;
    for (const [part, module] of Object.entries(M3_PARTS)) {
      const { shape: [count, rows, columns], values } = floats(`blk.1.ffn_${part}_exps.weight`);
      for (let expert = 0; expert < count; expert++) {
        const own = values.slice(expert * rows * columns, (expert + 1) * rows * columns);
        tensors.set(`${moe}experts.${expert}.${module}.weight`, storeFloats("F32", [rows, columns], own));
      }
    }
    tensors.set(`${moe}e_score_correction_bias`, stored(floats("blk.1.exp_probs_b.bias")));
  },
  ...REST,
};

export const LLAMA4: Published = {
  architecture: "llama4",
  config: layered({
    ...COMMON,
    model_type: "llama4_text",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 256,
    intermediate_size_mlp: 768,
    rope_theta: 5e5,
    rope_scaling: {
      rope_type: "llama3",
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 256,
    },
    num_local_experts: 12,
    num_experts_per_tok: 1,
    interleave_moe_layer_step: 2,
    no_rope_layers: [1, 1, 1, 0, 1],
    moe_layers: [1, 3],
    attention_chunk_size: 8192,
    attn_temperature_tuning: true,
    attn_scale: 0.1,
    floor_scale: 8192,
    use_qk_norm: true,
  }),
  names: [
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.feed_forward.router"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.feed_forward.shared_expert.$2_proj"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)$/, "model.layers.$1.feed_forward.$2_proj"],
    ...namesOf("model."),
  ],
  change: (tensors, floats) =>
    turnedExperts(tensors, floats, [1, 3], (layer) => `model.layers.${layer}.feed_forward.experts.`),
  ownFactors: true,
  ...REST,
};

export const STEP35: Published = {
  architecture: "step35",
  config: layered({
    ...COMMON,
    model_type: "step3p5",
    num_hidden_layers: 6,
    num_attention_heads: 4,
    num_attention_groups: 2,
    attention_other_setting: { num_attention_heads: 8, num_attention_groups: 2, head_dim: 64 },
    head_dim: 64,
    // The last entry of each list describes a draft layer.
    layer_types: [...kinds("full_attention", "sliding_attention"), "sliding_attention", "sliding_attention"],
    rope_theta: [...kinds(5e5, 1e4), 1e4, 1e4],
    partial_rotary_factors: [...kinds(0.5, 1), 1, 1],
    rope_scaling: {
      rope_type: "llama3",
      factor: 2,
      low_freq_factor: 1,
      high_freq_factor: 32,
      original_max_position_embeddings: 128,
    },
    num_nextn_predict_layers: 1,
    sliding_window: 40,
    moe_num_experts: 12,
    moe_top_k: 3,
    moe_layers_enum: "1,2,3,4,5",
    moe_router_activation: "sigmoid",
    moe_router_scaling_factor: 1.5,
    norm_expert_weight: true,
    use_moe_router_bias: true,
    share_expert_dim: 256,
    swiglu_limits: [null, null, null, null, 0.3, 0.3, null],
    swiglu_limits_shared: [0, 0, 0, 0, 0.5, 0.5, 0],
  }),
  names: [
    [/^blk\.(\d+)\.attn_gate$/, "model.layers.$1.self_attn.g_proj"],
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.moe.gate"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_exps$/, "model.layers.$1.moe.$2_proj"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.share_expert.$2_proj"],
    ...namesOf("model."),
  ],
  shiftedNorms: true,
  ownFactors: true,
  change(tensors, floats) {
    for (let i = 1; i < 6; i++) {
      tensors.set(`model.layers.${i}.moe.router_bias`, stored(floats(`blk.${i}.exp_probs_b.bias`)));
    }
  },
  ...REST,
};

export const SMALLTHINKER: Published = {
  architecture: "smallthinker",
  config: layered({
    rms_norm_eps: 1e-6,
    model_type: "smallthinker",
    num_hidden_layers: 5,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 32,
    rope_theta: 1.5e6,
    tie_word_embeddings: true,
    moe_ffn_hidden_size: 256,
    moe_num_primary_experts: 12,
    moe_num_active_primary_experts: 3,
    moe_enable_secondary_experts: false,
    moe_primary_router_apply_softmax: false,
    norm_topk_prob: true,
    rope_layout: kinds(0, 1),
    sliding_window_layout: kinds(0, 1),
    sliding_window_size: 4096,
  }),
  names: [
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.block_sparse_moe.primary_router"],
    ...namesOf("model."),
  ],
  change(tensors, floats) {
    moduleEach(tensors, floats, 0, 5);
    for (const [name, tensor] of [...tensors]) {
      const theirs = name.replace(".mlp.experts.", ".block_sparse_moe.experts.").replace(
        "_proj.weight",
        ".weight",
      );
      if (!name.includes(".mlp.experts.")) continue;
      tensors.delete(name);
      tensors.set(theirs, tensor);
    }
  },
  ...REST,
};
