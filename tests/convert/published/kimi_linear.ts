/** Seeded hybrids with Kimi Delta Attention, in the layout of published checkpoints: Kimi Linear and Ling 3.0. */
import { type StoredTensor, storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import { kvRows, LATENT_NAMES } from "./latent.ts";
import { type Floats, layered, moduleEach, type Names, type Published } from "./model.ts";

const REST = {
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
} as const;
const LAYERS = 3;
const COMMON = {
  rms_norm_eps: 1e-6,
  hidden_act: "silu",
  num_hidden_layers: LAYERS,
  intermediate_size: 768,
  moe_intermediate_size: 256,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  kv_lora_rank: 256,
  q_lora_rank: null,
  qk_nope_head_dim: 256,
  qk_rope_head_dim: 32,
  v_head_dim: 64,
  num_experts: 12,
  num_shared_experts: 1,
  first_k_dense_replace: 1,
  routed_scaling_factor: 1.5,
  rope_theta: 1e4,
  tie_word_embeddings: false,
};

const stored = ({ shape, values }: Floats) => storeFloats("F32", [...shape], values);

const namesOf = (attention: string, output: string): Names => [
  [/^blk\.(\d+)\.attn_output$/, `model.layers.$1.${attention}.${output}`],
  [/^blk\.(\d+)\.attn_(q|k|v)$/, `model.layers.$1.${attention}.$2_proj`],
  [/^blk\.(\d+)\.ssm_beta$/, `model.layers.$1.${attention}.b_proj`],
  [/^blk\.(\d+)\.ssm_norm$/, `model.layers.$1.${attention}.o_norm`],
  [/^blk\.(\d+)\.attn_kv_a_mqa$/, `model.layers.$1.${attention}.kv_a_proj_with_mqa`],
  [/^blk\.(\d+)\.attn_kv_a_norm$/, `model.layers.$1.${attention}.kv_a_layernorm`],
  ...LATENT_NAMES,
];

/** Adds attention tensors whose values or shapes differ from the seeded file's. The second layer has latent attention. */
function addAttention(
  tensors: Map<string, StoredTensor>,
  floats: (name: string) => Floats,
  attention: string,
  logarithm: (rate: number) => number,
): void {
  for (let i = 0; i < LAYERS; i++) {
    const from = `model.layers.${i}.${attention}.`;
    const own = (name: string) => floats(`blk.${i}.${name}`);
    if (i === 1) {
      tensors.set(`${from}kv_b_proj.weight`, kvRows(own("attn_k_b.weight"), own("attn_v_b.weight")));
      continue;
    }
    for (const part of ["q", "k", "v"]) {
      const { values } = own(`ssm_conv1d_${part}.weight`);
      tensors.set(`${from}${part}_conv1d.weight`, storeFloats("F32", [values.length / 4, 1, 4], values));
    }
    const rates = own("ssm_a").values;
    tensors.set(`${from}A_log`, storeFloats("F32", [1, 1, rates.length, 1], rates.map(logarithm)));
    tensors.set(`${from}dt_bias`, stored(own("ssm_dt.bias")));
  }
}

export const KIMI_LINEAR: Published = {
  architecture: "kimi-linear",
  config: layered({
    ...COMMON,
    model_type: "kimi_linear",
    num_experts_per_token: 3,
    num_expert_group: 1,
    topk_group: 1,
    moe_renormalize: true,
    moe_router_activation_func: "sigmoid",
    mla_use_nope: true,
    linear_attn_config: {
      full_attn_layers: [2],
      kda_layers: [1, 3],
      head_dim: 64,
      num_heads: 4,
      short_conv_kernel_size: 4,
    },
  }),
  names: [
    [/^blk\.(\d+)\.ssm_(f|g)_(a|b)$/, "model.layers.$1.self_attn.$2_$3_proj"],
    [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.block_sparse_moe.gate"],
    [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.block_sparse_moe.shared_experts.$2_proj"],
    ...namesOf("self_attn", "o_proj"),
  ],
  change(tensors, floats) {
    addAttention(tensors, floats, "self_attn", (rate) => Math.log(-rate));
    for (const i of [1, 2]) {
      const moe = `model.layers.${i}.block_sparse_moe.`;
      for (const [part, module] of Object.entries({ gate: "w1", up: "w3", down: "w2" })) {
        const { shape: [count, rows, columns], values } = floats(`blk.${i}.ffn_${part}_exps.weight`);
        for (let expert = 0; expert < count; expert++) {
          const own = values.slice(expert * rows * columns, (expert + 1) * rows * columns);
          tensors.set(`${moe}experts.${expert}.${module}.weight`, storeFloats("F32", [rows, columns], own));
        }
      }
      tensors.set(`${moe}gate.e_score_correction_bias`, stored(floats(`blk.${i}.exp_probs_b.bias`)));
    }
  },
  ...REST,
};

export const LING3: Published = {
  architecture: "bailingmoe3",
  config: layered({
    ...COMMON,
    model_type: "bailing_hybrid",
    head_dim: 64,
    num_experts_per_tok: 3,
    n_group: 1,
    topk_group: 1,
    norm_topk_prob: true,
    layer_group_size: 2,
    layer_types: ["linear_attention", "full_attention", "linear_attention"],
    short_conv_kernel_size: 4,
    no_kda_lora: true,
    kda_safe_gate: true,
    kda_lower_bound: -5,
    gated_attention_proj_granularity_type: "head_wise",
  }),
  names: [
    [/^token_embd$/, "model.word_embeddings"],
    [/^blk\.(\d+)\.attn_gate$/, "model.layers.$1.attention.g_proj"],
    [/^blk\.(\d+)\.ssm_(f|g)_a$/, "model.layers.$1.attention.$2_proj"],
    ...namesOf("attention", "dense"),
  ],
  change(tensors, floats) {
    addAttention(tensors, floats, "attention", Math.log);
    moduleEach(tensors, floats, 1, LAYERS);
    for (const i of [1, 2]) {
      tensors.set(`model.layers.${i}.mlp.gate.expert_bias`, stored(floats(`blk.${i}.exp_probs_b.bias`)));
    }
  },
  ...REST,
};
