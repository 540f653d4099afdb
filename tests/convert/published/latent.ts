/** Seeded models with latent attention as their makers would publish them. */
import { type StoredTensor, storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import {
  attentionNames,
  type Config,
  context,
  type Floats,
  layered,
  moduleEach,
  type Names,
  type Published,
} from "./model.ts";

const COMMON = {
  rms_norm_eps: 1e-6,
  hidden_act: "silu",
  intermediate_size: 768,
  moe_intermediate_size: 256,
  n_routed_experts: 12,
  first_k_dense_replace: 1,
  kv_lora_rank: 256,
  qk_nope_head_dim: 256,
  qk_rope_head_dim: 32,
  v_head_dim: 128,
  n_group: 1,
  topk_group: 1,
  attention_bias: false,
  tie_word_embeddings: false,
};
const REST = {
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
} as const;

export const LATENT_NAMES: Names = [
  [/^blk\.(\d+)\.attn_kv_a_mqa$/, "model.layers.$1.self_attn.kv_a_proj_with_mqa"],
  [/^blk\.(\d+)\.attn_(q|kv)_a_norm$/, "model.layers.$1.self_attn.$2_a_layernorm"],
  [/^blk\.(\d+)\.attn_q_(a|b)$/, "model.layers.$1.self_attn.q_$2_proj"],
  [/^output$/, "lm_head"],
  ...attentionNames("model."),
  [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
  [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.mlp.gate"],
  [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_experts.$2_proj"],
];

/** Returns one matrix with each head's key rows followed by its value rows. */
export function kvRows(k: Floats, v: Floats): StoredTensor {
  const [heads, rank, plain] = k.shape;
  const each = v.shape[1];
  const rows = new Float32Array(heads * (plain + each) * rank);
  for (let head = 0; head < heads; head++) {
    const first = head * (plain + each) * rank;
    for (let i = 0; i < plain * rank; i++) {
      rows[first + i] = k.values[(head * rank + i % rank) * plain + Math.floor(i / rank)];
    }
    rows.set(v.values.subarray(head * each * rank, (head + 1) * each * rank), first + plain * rank);
  }
  return storeFloats("F32", [heads * (plain + each), rank], rows);
}

/** Prefix of the modules of Mistral Small 4's text part. */
const MISTRAL = "language_model.";

/** Returns one tensor with each expert's gate rows followed by its up rows. */
function gateUp(gate: Floats, up: Floats): StoredTensor {
  const [count, rows, columns] = gate.shape;
  const each = rows * columns;
  const both = new Float32Array(2 * count * each);
  for (let expert = 0; expert < count; expert++) {
    for (const [i, { values }] of [gate, up].entries()) {
      both.set(values.subarray(expert * each, (expert + 1) * each), (2 * expert + i) * each);
    }
  }
  return storeFloats("F32", [count, 2 * rows, columns], both);
}

/** Returns the changes of a model with latent attention. With `bias`, the choice of experts has a bias. */
const latent = (bias: boolean, layers = 4): Published["change"] => (tensors, floats) => {
  moduleEach(tensors, floats, 1, layers);
  for (let i = 0; i < layers; i++) {
    const own = (part: string) => floats(`blk.${i}.attn_${part}_b.weight`);
    tensors.set(`model.layers.${i}.self_attn.kv_b_proj.weight`, kvRows(own("k"), own("v")));
    if (!bias || i === 0) continue;
    const { shape, values } = floats(`blk.${i}.exp_probs_b.bias`);
    tensors.set(`model.layers.${i}.mlp.gate.e_score_correction_bias`, storeFloats("F32", [...shape], values));
  }
};

export const GLM47_FLASH: Published = {
  architecture: "deepseek2",
  config: layered({
    ...COMMON,
    model_type: "glm4_moe_lite",
    num_attention_heads: 8,
    num_key_value_heads: 8,
    q_lora_rank: 512,
    rope_theta: 1e6,
    rope_scaling: null,
    num_experts_per_tok: 3,
    n_shared_experts: 1,
    norm_topk_prob: true,
    routed_scaling_factor: 1.8,
  }),
  names: LATENT_NAMES,
  change: latent(true),
  ...REST,
};

export const DEEPSEEK_V2_LITE: Published = {
  architecture: "deepseek2-lite",
  config: layered({
    ...COMMON,
    model_type: "deepseek_v2",
    num_attention_heads: 6,
    num_key_value_heads: 6,
    q_lora_rank: null,
    rope_theta: 1e4,
    rope_scaling: {
      type: "yarn",
      factor: 40,
      original_max_position_embeddings: 51,
      beta_fast: 32,
      beta_slow: 1,
      mscale: 0.707,
      mscale_all_dim: 0.707,
    },
    scoring_func: "softmax",
    topk_method: "greedy",
    num_experts_per_tok: 4,
    n_shared_experts: 2,
    norm_topk_prob: false,
    routed_scaling_factor: 1,
  }),
  names: LATENT_NAMES,
  change: latent(false),
  ...REST,
};

export const MISTRAL_SMALL_4: Published = {
  architecture: "mistral4",
  config: {
    model_type: "mistral3",
    text_config: layered({
      ...COMMON,
      model_type: "mistral4",
      n_routed_experts: 8,
      first_k_dense_replace: undefined,
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 288,
      q_lora_rank: 512,
      num_experts_per_tok: 2,
      n_shared_experts: 1,
      norm_topk_prob: true,
      routed_scaling_factor: 1,
      rope_interleave: true,
      rope_parameters: {
        type: "yarn",
        rope_type: "yarn",
        rope_theta: 1e4,
        factor: 40,
        original_max_position_embeddings: 51,
        max_position_embeddings: 2048,
        beta_fast: 32,
        beta_slow: 1,
        mscale: 1,
        mscale_all_dim: 1,
        llama_4_scaling_beta: 0.1,
        partial_rotary_factor: 32 / 288,
      },
    }),
  },
  names: LATENT_NAMES.map(([ours, theirs]) => [ours, MISTRAL + theirs]),
  change(tensors, floats) {
    for (let i = 0; i < 4; i++) {
      const layer = `${MISTRAL}model.layers.${i}.`;
      const own = (part: string) => floats(`blk.${i}.${part}.weight`);
      tensors.set(`${layer}self_attn.kv_b_proj.weight`, kvRows(own("attn_k_b"), own("attn_v_b")));
      const down = own("ffn_down_exps");
      tensors.set(`${layer}mlp.experts.gate_up_proj`, gateUp(own("ffn_gate_exps"), own("ffn_up_exps")));
      tensors.set(`${layer}mlp.experts.down_proj`, storeFloats("F32", [...down.shape], down.values));
    }
  },
  ...REST,
};

/** Returns a model with sparse attention: an indexer chooses the tokens that each row attends to. */
const sparse = (architecture: "deepseek32" | "glm-dsa", config: Config): Published => ({
  architecture,
  config: layered({
    ...COMMON,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    q_lora_rank: 256,
    v_head_dim: 64,
    num_experts_per_tok: 3,
    n_shared_experts: 1,
    norm_topk_prob: true,
    routed_scaling_factor: 1.5,
    rope_theta: 1e4,
    index_n_heads: 16,
    index_head_dim: 64,
    ...config,
  }),
  names: [
    [/^blk\.(\d+)\.indexer\.attn_q_b$/, "model.layers.$1.self_attn.indexer.wq_b"],
    [/^blk\.(\d+)\.indexer\.attn_k$/, "model.layers.$1.self_attn.indexer.wk"],
    [/^blk\.(\d+)\.indexer\.proj$/, "model.layers.$1.self_attn.indexer.weights_proj"],
    [/^blk\.(\d+)\.indexer\.k_norm$/, "model.layers.$1.self_attn.indexer.k_norm"],
    ...LATENT_NAMES,
  ],
  change: latent(true, 2),
  ...REST,
});

export const DEEPSEEK_V32: Published = sparse("deepseek32", {
  model_type: "deepseek_v32",
  index_topk: 56,
  rope_scaling: {
    type: "yarn",
    factor: 4,
    original_max_position_embeddings: context / 4,
    beta_fast: 32,
    beta_slow: 1,
    mscale: 1,
    mscale_all_dim: 1,
  },
});

export const GLM5: Published = sparse("glm-dsa", {
  model_type: "glm_moe_dsa",
  index_topk: 48,
  indexer_types: ["full", "shared"],
  mlp_layer_types: ["dense", "sparse"],
});

/** LongRoPE's factors, as in the seeded file. */
const factors = (most: number) => Array.from({ length: 16 }, (_, i) => 1 + most * i / 16);

export const MINICPM3: Published = {
  architecture: "minicpm3",
  config: layered({
    model_type: "minicpm3",
    hidden_size: 512,
    hidden_act: "silu",
    intermediate_size: 768,
    num_attention_heads: 8,
    num_key_value_heads: 8,
    q_lora_rank: 512,
    kv_lora_rank: 256,
    qk_nope_head_dim: 96,
    qk_rope_head_dim: 32,
    rms_norm_eps: 1e-6,
    rope_scaling: {
      type: "longrope",
      long_factor: factors(30),
      short_factor: factors(2),
      original_max_position_embeddings: 64,
      attention_factor: 1,
    },
    scale_emb: 12,
    scale_depth: 1.4,
    dim_model_base: 256,
  }),
  names: [[/^blk\.(\d+)\.attn_kv_b$/, "model.layers.$1.self_attn.kv_b_proj"], ...LATENT_NAMES],
  ...REST,
};
