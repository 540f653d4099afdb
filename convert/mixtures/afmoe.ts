import { type DecoderConfig, MAX } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { addExperts, addSharedExperts, expertEntries, type ExpertsConfig, readExperts } from "./experts.ts";
import type { Fields } from "../checkpoint/json.ts";
import { PERIOD, withWindows } from "../../engine/architectures/decoders/post_normed.ts";
import { addFeedForward } from "../decoder.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import { SIGMOID } from "./sigmoid_experts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_SCALE = 1e9;
const NORMS = {
  attn_norm: "input_layernorm",
  post_attention_norm: "post_attention_layernorm",
  ffn_norm: "pre_mlp_layernorm",
  post_ffw_norm: "post_mlp_layernorm",
};

interface AfmoeExperts extends ExpertsConfig {
  /** Number of shared experts, which are stored as one. */
  readonly shared: number;
  /** Number of leading layers without experts. */
  readonly denseLayers: number;
}

/** Converts Arcee's Trinity. `prefix` precedes `layers.0`. */
export function convertAfmoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const decoder = readDecoderConfig(config, { scalings: ["linear"] });
  refuseOtherModels(config);
  const experts = readAfmoeExperts(config, decoder.layers);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    for (const [name, tensor] of Object.entries(NORMS)) {
      list.vector(`${block}${name}.weight`, `${layer}${tensor}.weight`, decoder.hidden);
    }
    addAttention(list, decoder, block, `${layer}self_attn.`);
    if (i < experts.denseLayers) addFeedForward(list, decoder, { block, from: layer });
    else addMixture(list, decoder, experts, block, `${layer}mlp.`);
  }
  const key = (name: string) => `afmoe.${name}`;
  return {
    decoder,
    entries: [
      ...decoderEntries("afmoe", decoder),
      ...expertEntries("afmoe", experts),
      entry(key("attention.sliding_window"), "UINT32", config.count("sliding_window", MAX.context)),
      entry(key("leading_dense_block_count"), "UINT32", experts.denseLayers),
      entry(key("expert_shared_count"), "UINT32", experts.shared),
      entry(key("expert_gating_func"), "UINT32", SIGMOID),
      entry(key("expert_weights_norm"), "BOOL", config.boolean("route_norm", true)),
      entry(key("expert_weights_scale"), "FLOAT32", config.positive("route_scale", MAX_SCALE, 1)),
    ],
  };
}

/** Throws ConvertError for a model that GGUF's keys cannot describe. */
function refuseOtherModels(config: Fields): void {
  // Hugging Face's Trinity does not scale the embedding by default.
  if (!config.boolean("mup_enabled", false)) {
    config.refuse("mup_enabled", "false", "true, because the embedding is scaled");
  }
  config.mustBe("score_func", "sigmoid", "sigmoids weigh experts");
  for (const name of ["n_group", "num_expert_groups"]) config.mustBe(name, 1, "experts are in one group");
  config.mustBe("global_attn_every_n_layers", PERIOD, "GGUF files have no key for it");
  withWindows(config);
}

function readAfmoeExperts(config: Fields, layers: number): AfmoeExperts {
  const experts = readExperts(config, true);
  return {
    ...experts,
    shared: config.countFrom0("num_shared_experts", experts.count),
    denseLayers: config.countFrom0("num_dense_layers", layers),
  };
}

function addAttention(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  block: string,
  from: string,
): void {
  for (const [part, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads, gate: heads })) {
    list.matrix(`${block}attn_${part}`, `${from}${part}_proj`, count * headDim, hidden);
  }
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
  for (const part of ["q_norm", "k_norm"]) {
    list.vector(`${block}attn_${part}.weight`, `${from}${part}.weight`, headDim);
  }
}

function addMixture(
  list: TensorList,
  decoder: DecoderConfig,
  experts: AfmoeExperts,
  block: string,
  mlp: string,
): void {
  addExperts(list, decoder, experts, block, mlp, { router: `${mlp}router.gate` });
  list.vector(`${block}exp_probs_b.bias`, `${mlp}expert_bias`, experts.count);
  const width = experts.shared * experts.feedForward;
  if (width > 0) addSharedExperts(list, decoder, width, block, `${mlp}shared_experts.`);
}
