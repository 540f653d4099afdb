/** Seeded models of GPT-NeoX's kind as they would be published. */
import { tokenizerOf } from "../../../testing/checkpoints.ts";
import { attentionNames, layered, type Published } from "./model.ts";

const TOKENIZER = {
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
} as const;

export const NEOX: Readonly<Record<string, Published>> = {
  "Phi-2": {
    ...TOKENIZER,
    architecture: "phi2",
    config: layered({
      model_type: "phi",
      num_attention_heads: 4,
      num_key_value_heads: null,
      intermediate_size: 768,
      hidden_act: "gelu_new",
      layer_norm_eps: 1e-5,
      partial_rotary_factor: 0.375,
      qk_layernorm: false,
      rope_scaling: null,
      rope_theta: 1e4,
      tie_word_embeddings: false,
    }),
    names: [
      [/^output$/, "lm_head"],
      [/^output_norm$/, "model.final_layernorm"],
      [/^blk\.(\d+)\.attn_output$/, "model.layers.$1.self_attn.dense"],
      [/^blk\.(\d+)\.ffn_up$/, "model.layers.$1.mlp.fc1"],
      [/^blk\.(\d+)\.ffn_down$/, "model.layers.$1.mlp.fc2"],
      ...attentionNames("model."),
    ],
  },
  "StableLM 2": {
    ...TOKENIZER,
    architecture: "stablelm",
    config: layered({
      model_type: "stablelm",
      num_attention_heads: 8,
      num_key_value_heads: 4,
      intermediate_size: 768,
      hidden_act: "silu",
      layer_norm_eps: 1e-5,
      partial_rotary_factor: 0.25,
      qk_layernorm: false,
      rope_theta: 1e4,
      tie_word_embeddings: false,
      use_parallel_residual: false,
      use_qkv_bias: true,
    }),
    names: [
      ...attentionNames("model."),
      [/^output$/, "lm_head"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.post_attention_layernorm"],
    ],
  },
};
