import { MAX } from "../bounds.ts";
import {
  type DecoderConfig,
  decoderEntries,
  type DecoderKeys,
  readDecoderConfig,
} from "../decoder_config.ts";
import { refuseOtherLayers } from "./gemma3.ts";
import type { Fields } from "../checkpoint/json.ts";
import { addFeedForward } from "./llama.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_SCALE = 1e9;
/** One layer in so many has no window, the last of them. */
const PERIOD = 4;

/** The tensors and keys of Command R and R+ and of Aya. */
export function convertCohere(config: Fields, list: TensorList, prefix: string): ModelParts {
  return cohereParts("command-r", config, list, prefix, {
    decoder: readCohereConfig(config),
    headNorms: config.boolean("use_qk_norm", false),
  });
}

/** The tensors and keys of Command R7B and A. */
export function convertCohere2(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("rotary_pct", 1, "heads are rotated as a whole");
  config.mustBe("sliding_window_pattern", PERIOD, "GGUF's readers take every fourth layer to have no window");
  refuseOtherLayers(config, PERIOD);
  const { entries, ...rest } = cohereParts("cohere2", config, list, prefix, {
    decoder: readCohereConfig(config),
  });
  const window = config.count("sliding_window", MAX.context);
  return { ...rest, entries: [...entries, entry("cohere2.attention.sliding_window", "UINT32", window)] };
}

interface CohereTraits {
  readonly decoder: DecoderConfig;
  /** Each head has a norm of its own. */
  readonly headNorms?: boolean;
  /** Norms are RMSNorm, and not about the mean. */
  readonly rms?: boolean;
  /** Lists a layer's feed-forward half; by default SwiGLU's matrices. `from` is what stands before the layer's modules. */
  readonly feedForward?: (block: string, from: string, layer: number) => void;
}

/** What Cohere's models have in common. */
export function cohereParts(
  architecture: "command-r" | "cohere2" | "cohere2moe",
  config: Fields,
  list: TensorList,
  prefix: string,
  { decoder, headNorms = false, rms = false, feedForward }: CohereTraits,
): ModelParts {
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}input_layernorm.weight`, decoder.hidden);
    addHeads(list, decoder, headNorms, block, `${layer}self_attn.`);
    if (feedForward) feedForward(block, layer, i);
    else addFeedForward(list, decoder, block, layer);
  }
  const scale = config.positive("logit_scale", MAX_SCALE);
  return {
    decoder,
    entries: [
      ...decoderEntries(architecture, decoder, rms ? "layer_norm_rms_epsilon" : "layer_norm_epsilon"),
      entry(`${architecture}.logit_scale`, "FLOAT32", scale),
    ],
    tied: config.boolean("tie_word_embeddings", true),
  };
}

export function readCohereConfig(config: Fields, keys: DecoderKeys = {}): DecoderConfig {
  const decoder = readDecoderConfig(config, { keys: { epsilon: "layer_norm_eps", ...keys }, scalings: [] });
  // Command R's first files have the context that it was trained for under this name.
  const key = "model_max_length";
  return config.has(key) ? { ...decoder, context: config.count(key, MAX.context) } : decoder;
}

/** Rotated pairs lie side by side in both. */
function addHeads(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  norms: boolean,
  block: string,
  from: string,
): void {
  for (const [part, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads })) {
    list.matrix(`${block}attn_${part}`, `${from}${part}_proj`, count * headDim, hidden);
    if (!norms || part === "v") continue;
    list.floats(`${block}attn_${part}_norm.weight`, `${from}${part}_norm.weight`, count, headDim);
  }
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
}
