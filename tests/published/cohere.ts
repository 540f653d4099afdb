/** Seeded models of Cohere's as they would be published. */
import { tinyCheckpoint } from "../checkpoints.ts";
import { attentionNames, type Config, layered, type Published } from "./model.ts";

const COHERE = layered({
  intermediate_size: 768,
  num_key_value_heads: 2,
  hidden_act: "silu",
  layer_norm_eps: 1e-5,
  rope_theta: 1e4,
  attention_bias: false,
});

function cohere(architecture: "cohere2" | "command-r" | "command-r-plus", config: Config): Published {
  return {
    architecture,
    config: { ...COHERE, ...config },
    names: attentionNames("model."),
    tokenizer: tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }),
    ids: ["the", [257]],
  };
}

export const COHERES: Readonly<Record<string, Published>> = {
  "Command R": cohere("command-r", {
    model_type: "cohere",
    num_attention_heads: 4,
    logit_scale: 1.25,
    max_position_embeddings: 512,
    model_max_length: COHERE.max_position_embeddings,
  }),
  "Command R+": {
    ...cohere("command-r-plus", {
      model_type: "cohere",
      num_hidden_layers: 2,
      num_attention_heads: 8,
      intermediate_size: 256,
      logit_scale: 1.25,
      use_qk_norm: true,
    }),
    layers: 2,
  },
  "Command R7B": cohere("cohere2", {
    model_type: "cohere2",
    num_hidden_layers: 5,
    num_attention_heads: 8,
    logit_scale: 0.75,
    sliding_window: 40,
    sliding_window_pattern: 4,
    rotary_pct: 1,
    order_of_interleaved_layers: "local_attn_first",
    position_embedding_type: "rope_gptj",
  }),
};
