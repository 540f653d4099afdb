import { affine, affineNorm } from "../affine.ts";
import { type DecoderConfig, decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import type { Fields } from "../checkpoint/json.ts";
import { addFeedForward } from "./llama.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** The tensors and keys of Phi-1, 1.5 and 2. */
export function convertPhi(config: Fields, list: TensorList, prefix: string): ModelParts {
  const decoder = readConfig(config, { activation: "gelu_new", partialRotary: 0.5 });
  const { hidden, feedForward, vocabulary } = decoder;
  list.matrix("token_embd", `${prefix}embed_tokens`, vocabulary, hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    affineNorm(list, `${block}attn_norm`, `${layer}input_layernorm`, hidden);
    addHeads(list, decoder, block, `${layer}self_attn.`, { biases: true, output: "dense" });
    list.vector(`${block}attn_output.bias`, `${layer}self_attn.dense.bias`, hidden);
    affine(list, `${block}ffn_up`, `${layer}mlp.fc1`, feedForward, hidden);
    affine(list, `${block}ffn_down`, `${layer}mlp.fc2`, hidden, feedForward);
  }
  list.vector("output_norm.bias", `${prefix}final_layernorm.bias`, hidden);
  list.vector("output.bias", "lm_head.bias", vocabulary);
  return {
    decoder,
    entries: decoderEntries("phi2", decoder, "layer_norm_epsilon"),
    lastNorm: { name: "output_norm.weight", tensor: `${prefix}final_layernorm.weight` },
  };
}

/** The tensors and keys of StableLM 3B and 2, but for the 12B, of which each head has a norm in a tensor of its own. */
export function convertStableLm(config: Fields, list: TensorList, prefix: string): ModelParts {
  const parallel = config.boolean("use_parallel_residual", false);
  const biases = config.boolean("use_qkv_bias", false);
  const decoder = readConfig(config, { partialRotary: 0.25 });
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    affineNorm(list, `${block}attn_norm`, `${layer}input_layernorm`, decoder.hidden);
    addHeads(list, decoder, block, `${layer}self_attn.`, { biases, output: "o_proj" });
    if (!parallel) affineNorm(list, `${block}ffn_norm`, `${layer}post_attention_layernorm`, decoder.hidden);
    addFeedForward(list, decoder, block, layer);
  }
  list.vector("output_norm.bias", `${prefix}norm.bias`, decoder.hidden);
  const entries = decoderEntries("stablelm", decoder, "layer_norm_epsilon");
  return { decoder, entries: [...entries, entry("stablelm.use_parallel_residual", "BOOL", parallel)] };
}

function readConfig(config: Fields, options: Parameters<typeof readDecoderConfig>[1]): DecoderConfig {
  config.mustBe("qk_layernorm", false, "norms of heads are not converted");
  return readDecoderConfig(config, { ...options, keys: { epsilon: "layer_norm_eps" }, scalings: [] });
}

function addHeads(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  block: string,
  from: string,
  { biases, output }: { readonly biases: boolean; readonly output: string },
): void {
  for (const [part, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads })) {
    const [name, module] = [`${block}attn_${part}`, `${from}${part}_proj`];
    if (biases) affine(list, name, module, count * headDim, hidden);
    else list.matrix(name, module, count * headDim, hidden);
  }
  list.matrix(`${block}attn_output`, `${from}${output}`, hidden, heads * headDim);
}
