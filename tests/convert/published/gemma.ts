/** Seeded models of Gemma's kind as their makers would publish them. */
import { GEMMA } from "../../../testing/checkpoint_tokenizers.ts";
import { type StoredTensor, storeFloats } from "../../../testing/checkpoints.ts";
import {
  attentionNames,
  type Config,
  type Floats,
  layered,
  type Names,
  type Published,
  vocabulary,
} from "./model.ts";

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

/**
 * Writes tensors with irregular names: the layers' scales, and experts with each expert's gate before its up matrix.
 */
function gemma4Rest(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  const layer = (i: number) => `${GEMMA4_PREFIX}layers.${i}.`;
  const put = (name: string, { shape, values }: Floats) =>
    tensors.set(name, storeFloats("F32", [...shape], values));
  for (let i = 0; i < 6; i++) {
    put(`${layer(i)}layer_scalar`, floats(`blk.${i}.layer_output_scale.weight`));
    if (!tensors.has(`${layer(i)}router.proj.weight`)) {
      // Published files have this tensor too, but it is never read.
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

const GEMMA3N_LAYERS = 6;
const GEMMA3N_PREFIX = "model.language_model.";

/** Writes AltUp's matrices, one per module, and its scales. */
function gemma3nRest(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  for (const [name, module] of [["proj", "projections"], ["unembd_proj", "unembed_projections"]]) {
    const { shape: [count, ...shape], values } = floats(`altup_${name}.weight`);
    const each = values.length / count;
    for (let i = 0; i < count; i++) {
      const own = storeFloats("F32", shape, values.slice(i * each, (i + 1) * each));
      tensors.set(`${GEMMA3N_PREFIX}altup_${module}.${i}.weight`, own);
    }
  }
  for (let i = 0; i < GEMMA3N_LAYERS; i++) {
    const { shape, values } = floats(`blk.${i}.altup_correct_scale.weight`);
    const name = `${GEMMA3N_PREFIX}layers.${i}.altup.correct_output_scale`;
    tensors.set(name, storeFloats("F32", [...shape], values));
  }
}

export const GEMMAS = {
  "Gemma 3n": {
    architecture: "gemma3n",
    layers: GEMMA3N_LAYERS,
    config: {
      model_type: "gemma3n",
      text_config: layered({
        model_type: "gemma3n_text",
        num_hidden_layers: GEMMA3N_LAYERS,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 64,
        intermediate_size: Array(GEMMA3N_LAYERS).fill(512),
        hidden_activation: "gelu_pytorch_tanh",
        hidden_size_per_layer_input: 256,
        vocab_size_per_layer_input: vocabulary,
        num_kv_shared_layers: 2,
        layer_types: Array.from(
          { length: GEMMA3N_LAYERS },
          (_, i) => i % 2 === 1 ? "full_attention" : "sliding_attention",
        ),
        sliding_window: 24,
        rope_scaling: null,
        rope_theta: 1e6,
        rope_local_base_freq: 1e4,
        rms_norm_eps: 1e-6,
        final_logit_softcapping: 30,
        laurel_rank: 64,
        altup_num_inputs: 4,
        altup_active_idx: 0,
        altup_correct_scale: true,
        // The seeded model's gates are cut at this share, not at 0.95; testing/synth/gemma3n.ts says why.
        activation_sparsity_pattern: Array(GEMMA3N_LAYERS).fill(0.9501656625622885),
      }),
    },
    names: [
      ...gemmaNames(GEMMA3N_PREFIX),
      [/^per_layer_token_embd$/, `${GEMMA3N_PREFIX}embed_tokens_per_layer`],
      [/^per_layer_model_proj$/, `${GEMMA3N_PREFIX}per_layer_model_projection`],
      [/^per_layer_proj_norm$/, `${GEMMA3N_PREFIX}per_layer_projection_norm`],
      [/^blk\.(\d+)\.inp_gate$/, `${GEMMA3N_PREFIX}layers.$1.per_layer_input_gate`],
      [/^blk\.(\d+)\.proj$/, `${GEMMA3N_PREFIX}layers.$1.per_layer_projection`],
      [/^blk\.(\d+)\.post_norm$/, `${GEMMA3N_PREFIX}layers.$1.post_per_layer_input_norm`],
      [/^blk\.(\d+)\.altup_router_norm$/, `${GEMMA3N_PREFIX}layers.$1.altup.router_norm`],
      [/^blk\.(\d+)\.altup_router$/, `${GEMMA3N_PREFIX}layers.$1.altup.modality_router`],
      [/^blk\.(\d+)\.altup_predict_coef$/, `${GEMMA3N_PREFIX}layers.$1.altup.prediction_coefs`],
      [/^blk\.(\d+)\.altup_correct_coef$/, `${GEMMA3N_PREFIX}layers.$1.altup.correction_coefs`],
      [/^blk\.(\d+)\.laurel_l$/, `${GEMMA3N_PREFIX}layers.$1.laurel.linear_left`],
      [/^blk\.(\d+)\.laurel_r$/, `${GEMMA3N_PREFIX}layers.$1.laurel.linear_right`],
      [/^blk\.(\d+)\.laurel_post_norm$/, `${GEMMA3N_PREFIX}layers.$1.laurel.post_laurel_norm`],
    ],
    tokenizer: GEMMA,
    ids: ["a a", [2, 263, 289]],
    change: gemma3nRest,
  },
  "Gemma": {
    architecture: "gemma",
    config: layered({
      model_type: "gemma",
      num_attention_heads: 8,
      num_key_value_heads: 1,
      head_dim: 64,
      intermediate_size: 768,
      hidden_act: "gelu",
      hidden_activation: null,
      rope_scaling: null,
      rope_theta: 1e4,
      rms_norm_eps: 1e-6,
    }),
    names: [
      ...attentionNames("model."),
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
    tokenizer: GEMMA,
    ids: ["a a", [2, 263, 289]],
    shiftedNorms: true,
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
} satisfies Record<string, Published>;
