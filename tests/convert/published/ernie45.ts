/** Seeded models of ERNIE 4.5 and Seed-OSS as their makers would publish them. */
import { type StoredTensor, storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import { attentionNames, type Floats, layered, moduleEach, type Published } from "./model.ts";

const COMMON = {
  intermediate_size: 768,
  rms_norm_eps: 1e-6,
  hidden_act: "silu",
};
const REST = {
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
} as const;
const NORM = "model.layers.$1.post_attention_layernorm";

/** ERNIE 4.5's model: the seeded Llama without its rotary factors. */
export const ERNIE45: Published = {
  architecture: "llama",
  becomes: "ernie4_5",
  config: layered({
    ...COMMON,
    model_type: "ernie4_5",
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 32,
    use_bias: false,
    tie_word_embeddings: false,
  }),
  names: [...attentionNames("model."), [/^output$/, "lm_head"], [/^blk\.(\d+)\.ffn_norm$/, NORM]],
  ...REST,
};

/** Writes the experts. The bias for the choice has one row per group of experts. */
function ernieExperts(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  moduleEach(tensors, floats, 1);
  for (let i = 1; i < 4; i++) {
    const { shape, values } = floats(`blk.${i}.exp_probs_b.bias`);
    const bias = storeFloats("F32", [1, ...shape], values);
    tensors.set(`model.layers.${i}.mlp.moe_statics.e_score_correction_bias`, bias);
  }
}

export const ERNIE45_MOE: Published = {
  architecture: "ernie4_5-moe",
  config: layered({
    ...COMMON,
    model_type: "ernie4_5_moe",
    num_attention_heads: 10,
    num_key_value_heads: 2,
    head_dim: 128,
    use_bias: false,
    rope_scaling: null,
    rope_theta: 5e5,
    moe_num_experts: 12,
    moe_k: 3,
    moe_intermediate_size: 256,
    moe_num_shared_experts: 2,
    moe_layer_start_index: 1,
    moe_layer_end_index: -1,
    moe_layer_interval: 1,
    tie_word_embeddings: true,
  }),
  names: [
    ...attentionNames("model."),
    [/^blk\.(\d+)\.ffn_norm$/, NORM],
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.mlp.gate"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_experts.$2_proj"],
  ],
  change: ernieExperts,
  ...REST,
};

export const SEED_OSS: Published = {
  architecture: "seed_oss",
  config: layered({
    ...COMMON,
    model_type: "seed_oss",
    num_attention_heads: 12,
    num_key_value_heads: 2,
    head_dim: 64,
    attention_bias: true,
    attention_out_bias: false,
    mlp_bias: false,
    rope_scaling: { rope_type: "default" },
    rope_theta: 1e7,
    tie_word_embeddings: false,
  }),
  names: [
    ...attentionNames("model."),
    [/^output$/, "lm_head"],
    [/^blk\.(\d+)\.post_attention_norm$/, NORM],
  ],
  ...REST,
};
