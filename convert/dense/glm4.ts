import { type DecoderConfig, decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** Where config.json does not say. Source: the default of GLM-4's configuration class. */
const PARTIAL_ROTARY = 0.5;

const NORMS = {
  attn_norm: "input_layernorm",
  post_attention_norm: "post_self_attn_layernorm",
  ffn_norm: "post_attention_layernorm",
  post_ffw_norm: "post_mlp_layernorm",
};

/** The tensors and keys of GLM-4 and GLM-Z1 of 2025, whose rotated pairs lie side by side in both. */
export function convertGlm4(config: Fields, list: TensorList, prefix: string): ModelParts {
  const decoder = readDecoderConfig(config, { partialRotary: PARTIAL_ROTARY, biases: true, scalings: [] });
  const biases = config.boolean("attention_bias", false);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    addLayer(list, decoder, biases, `blk.${i}.`, `${prefix}layers.${i}.`);
  }
  return { decoder, entries: decoderEntries("glm4", decoder) };
}

function addLayer(
  list: TensorList,
  { hidden, feedForward, heads, kvHeads, headDim }: DecoderConfig,
  biases: boolean,
  block: string,
  layer: string,
): void {
  for (const [name, tensor] of Object.entries(NORMS)) {
    list.vector(`${block}${name}.weight`, `${layer}${tensor}.weight`, hidden);
  }
  const from = `${layer}self_attn.`;
  for (const [part, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads })) {
    list.matrix(`${block}attn_${part}`, `${from}${part}_proj`, count * headDim, hidden);
    if (biases) list.vector(`${block}attn_${part}.bias`, `${from}${part}_proj.bias`, count * headDim);
  }
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
  list.matrix(`${block}ffn_up`, `${layer}mlp.gate_up_proj`, 2 * feedForward, hidden);
  list.matrix(`${block}ffn_down`, `${layer}mlp.down_proj`, hidden, feedForward);
}
