import { MAX } from "../bounds.ts";
import { type DecoderConfig, decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { Fields, inWords } from "../checkpoint/json.ts";
import { addFeedForward } from "./llama.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** One layer in so many has no window, the last of them. */
const PERIOD = 6;
/** Layers of the 27B, whose queries are scaled by the width that a head has of the embedding. */
const LARGEST = 62;
/** What GGUF's readers take the base of layers with a window for. */
const LOCAL_BASE = 10_000;
/** Where config.json does not say. Source: the defaults of Gemma 3's configuration class. */
const DEFAULTS = {
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 256,
  vocab_size: 262_208,
  max_position_embeddings: 131_072,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  hidden_activation: "gelu_pytorch_tanh",
  sliding_window: 4096,
  query_pre_attn_scalar: 256,
};

/** Norm weights are stored as the distance from 1. */
export const norm = (weight: number) => weight + 1;

/** The tensors and keys of Gemma 3's text part, and of EmbeddingGemma, which attends in both directions. `prefix` is what stands before `layers.0`. */
export function convertGemma3(given: Fields, list: TensorList, prefix: string): ModelParts {
  const config = withDefaults(given, DEFAULTS);
  config.mustBe("hidden_activation", "gelu_pytorch_tanh", "no other activation is computed");
  config.mustBe("sliding_window_pattern", PERIOD, "GGUF's readers take every sixth layer to have no window");
  const architecture = config.boolean("use_bidirectional_attention", false) ? "gemma-embedding" : "gemma3";
  config.mustBe("rope_local_base_freq", LOCAL_BASE, "GGUF's readers take no other base");
  refuseOtherLayers(config, PERIOD);
  const decoder = readDecoderConfig(config, { scalings: ["linear"] });
  const { hidden, heads, headDim } = decoder;
  const width = decoder.layers === LARGEST ? Math.floor(hidden / heads) : headDim;
  config.mustBe("query_pre_attn_scalar", width, "GGUF's readers take this scale of queries");
  addGemmaTensors(list, decoder, prefix, { headNorms: true });
  const window = config.count("sliding_window", MAX.context);
  return {
    decoder,
    architecture,
    entries: [
      ...decoderEntries(architecture, decoder),
      entry(`${architecture}.attention.sliding_window`, "UINT32", window),
      ...architecture === "gemma3" ? [] : [entry(`${architecture}.attention.causal`, "BOOL", false)],
    ],
    outputNorm: norm,
    tied: config.boolean("tie_word_embeddings", true),
  };
}

/** Of Gemma 2 and 3: norms before and after both halves of a layer. */
export function addGemmaTensors(
  list: TensorList,
  decoder: DecoderConfig,
  prefix: string,
  { headNorms }: { readonly headNorms: boolean },
): void {
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    addGemmaLayer(list, decoder, `blk.${i}.`, `${prefix}layers.${i}.`, { headNorms, map: norm });
  }
}

/** Of Gemma 2, 3 and 3n; `map` is applied to the weights of norms. */
export function addGemmaLayer(
  list: TensorList,
  decoder: DecoderConfig,
  block: string,
  layer: string,
  { headNorms, map }: { readonly headNorms: boolean; readonly map?: (weight: number) => number },
): void {
  const { hidden, heads, kvHeads, headDim } = decoder;
  const from = `${layer}self_attn.`;
  for (const [name, tensor] of Object.entries(NORMS)) {
    list.vector(`${block}${name}.weight`, `${layer}${tensor}.weight`, hidden, { map });
  }
  list.matrix(`${block}attn_q`, `${from}q_proj`, heads * headDim, hidden);
  list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
  if (headNorms) {
    list.vector(`${block}attn_q_norm.weight`, `${from}q_norm.weight`, headDim, { map });
    list.vector(`${block}attn_k_norm.weight`, `${from}k_norm.weight`, headDim, { map });
  }
  addFeedForward(list, decoder, block, layer);
}

const NORMS = {
  attn_norm: "input_layernorm",
  post_attention_norm: "post_attention_layernorm",
  ffn_norm: "pre_feedforward_layernorm",
  post_ffw_norm: "post_feedforward_layernorm",
};

/** Newer files have rope's keys apart for layers with a window and without. */
export function withDefaults(config: Fields, defaults: Fields["object"]): Fields {
  const ropes = config.fields("rope_parameters");
  const [full, near] = [ropes?.fields("full_attention"), ropes?.fields("sliding_attention")];
  const rope = full && near && {
    rope_parameters: full.object,
    rope_local_base_freq: near.get("rope_theta") ?? LOCAL_BASE,
  };
  const known = Object.entries(config.object).filter(([, value]) => value !== null);
  return new Fields(config.file, { ...defaults, ...Object.fromEntries(known), ...rope });
}

/** Throws ConvertError where windows are listed in another order than that every `period`th layer has none. */
export function refuseOtherLayers(config: Fields, period: number): void {
  const types = config.get("layer_types");
  if (types === undefined) return;
  const usual = (type: unknown, i: number) =>
    type === (i % period === period - 1 ? "full_attention" : "sliding_attention");
  if (!Array.isArray(types) || !types.every(usual)) {
    const allowed = `full_attention in every ${ORDINALS[period]} layer, sliding_attention in the others`;
    config.refuse("layer_types", inWords(types), allowed);
  }
}

const ORDINALS: Readonly<Record<number, string>> = { 2: "second", 4: "fourth", 6: "sixth" };
