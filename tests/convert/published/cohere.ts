/** Seeded models of Cohere's as they would be published. */
import { tokenizerOf } from "../../../testing/checkpoints.ts";
import { attentionNames, type Config, layered, moduleEach, type Published } from "./model.ts";

const COHERE = layered({
  intermediate_size: 768,
  num_key_value_heads: 2,
  hidden_act: "silu",
  layer_norm_eps: 1e-5,
  rope_theta: 1e4,
  attention_bias: false,
});

type Cohere = "cohere2" | "cohere2moe" | "cohere2moe-shared" | "command-r" | "command-r-plus";

function cohere(architecture: Cohere, config: Config): Published {
  return {
    architecture,
    config: { ...COHERE, ...config },
    names: attentionNames("model."),
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
  };
}

/** Returns a model with experts in all layers except the first `dense` ones. */
function cohereMoe(architecture: Cohere, layers: number, dense: number, config: Config): Published {
  const published = cohere(architecture, {
    model_type: "cohere2_moe",
    num_hidden_layers: layers,
    num_attention_heads: 8,
    intermediate_size: 256,
    prefix_dense_intermediate_size: 768,
    rope_theta: 5e4,
    num_experts: 12,
    num_experts_per_tok: 3,
    expert_selection_fn: "sigmoid",
    logit_scale: 0.75,
    sliding_window: 40,
    ...config,
  });
  return {
    ...published,
    names: [
      ...published.names,
      [/^blk\.(\d+)\.ffn_gate_inp$/, "model.layers.$1.mlp.gate"],
      [/^blk\.(\d+)\.ffn_(gate|up|down)_shexp$/, "model.layers.$1.mlp.shared_experts.$2_proj"],
    ],
    change: (tensors, floats) => moduleEach(tensors, floats, dense, layers),
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
  "North Mini": cohereMoe("cohere2moe", 6, 1, {
    head_dim: 64,
    rms_norm_eps: 1e-5,
    norm_topk_prob: true,
    first_k_dense_replace: 1,
    sliding_window_pattern: 4,
  }),
  "Command A+": cohereMoe("cohere2moe-shared", 5, 2, {
    num_shared_experts: 2,
    norm_topk_prob: true,
    mlp_layer_types: Array.from({ length: 5 }, (_, i) => i < 2 ? "dense" : "sparse"),
    layer_types: Array.from({ length: 5 }, (_, i) => i % 4 === 0 ? "full_attention" : "sliding_attention"),
    num_nextn_predict_layers: 0,
  }),
};
