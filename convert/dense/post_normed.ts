import { MAX } from "../bounds.ts";
import { type DecoderConfig, decoderEntries, llama3Factors, readDecoderConfig } from "../decoder_config.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { addFeedForward } from "./llama.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** One layer in so many has no window, the last of them. */
export const PERIOD = 4;

/** The tensors and keys of OLMo 2, and of OLMo 3, which has windows. `prefix` is what stands before `layers.0`. */
export function convertOlmo2(config: Fields, list: TensorList, prefix: string): ModelParts {
  const decoder = readDecoderConfig(config, { scalings: ["linear", "yarn"] });
  const isThird = config.string("model_type") === "olmo3";
  if (!isThird) config.mustBe("sliding_window", null, "windows are OLMo 3's");
  const window = isThird ? config.count("sliding_window", MAX.context) : undefined;
  const { heads, kvHeads, headDim } = decoder;
  return parts("olmo2", config, list, prefix, decoder, window, [heads * headDim, kvHeads * headDim]);
}

/** The tensors and keys of EXAONE 4. */
export function convertExaone4(config: Fields, list: TensorList, prefix: string): ModelParts {
  const decoder = readDecoderConfig(config);
  const { scaling } = decoder.rope;
  if (scaling.type === "llama3") list.made("rope_freqs.weight", llama3Factors(decoder.rope, scaling));
  const key = "sliding_window";
  // null is no window; a file that does not say it has Hugging Face's default, which is one.
  if (!Object.hasOwn(config.object, key)) config.refuse(key, "nothing", "a whole number or null");
  const window = config.has(key) ? config.count(key, MAX.context) : undefined;
  return parts("exaone4", config, list, prefix, decoder, window, [decoder.headDim, decoder.headDim]);
}

/** `norms` are the lengths of the norms of queries and of keys. */
function parts(
  architecture: "olmo2" | "exaone4",
  config: Fields,
  list: TensorList,
  prefix: string,
  decoder: DecoderConfig,
  window: number | undefined,
  norms: readonly [queries: number, keys: number],
): ModelParts {
  refuseOtherLayers(config, decoder.layers, window !== undefined);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    addLayer(list, decoder, `blk.${i}.`, `${prefix}layers.${i}.`, norms);
  }
  const entries = decoderEntries(architecture, decoder);
  const name = `${architecture}.attention.sliding_window`;
  return { decoder, entries: window === undefined ? entries : [...entries, entry(name, "UINT32", window)] };
}

function addLayer(
  list: TensorList,
  decoder: DecoderConfig,
  block: string,
  layer: string,
  [queries, keys]: readonly [number, number],
): void {
  const { hidden, heads, kvHeads, headDim } = decoder;
  const from = `${layer}self_attn.`;
  list.matrix(`${block}attn_q`, `${from}q_proj`, heads * headDim, hidden);
  list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
  list.vector(`${block}attn_q_norm.weight`, `${from}q_norm.weight`, queries);
  list.vector(`${block}attn_k_norm.weight`, `${from}k_norm.weight`, keys);
  list.vector(`${block}post_attention_norm.weight`, `${layer}post_attention_layernorm.weight`, hidden);
  addFeedForward(list, decoder, block, layer);
  list.vector(`${block}post_ffw_norm.weight`, `${layer}post_feedforward_layernorm.weight`, hidden);
}

/** GGUF's readers take every fourth layer to see all, whatever a file says. */
export function refuseOtherLayers(config: Fields, layers: number, windows: boolean): void {
  const ropes = config.fields("rope_parameters");
  if (ropes?.has("full_attention") || ropes?.has("sliding_attention")) {
    config.refuse("rope_parameters", "one for each kind of layers", "the same for all layers");
  }
  const pattern = config.get("sliding_window_pattern");
  if (windows && pattern !== undefined && pattern !== PERIOD && pattern !== "LLLG") {
    config.refuse("sliding_window_pattern", inWords(pattern), `${PERIOD} or "LLLG"`);
  }
  const types = config.get("layer_types");
  if (types === undefined) return;
  const wanted = Array.from(
    { length: layers },
    (_, i) => windows && i % PERIOD !== PERIOD - 1 ? "sliding_attention" : "full_attention",
  );
  if (!Array.isArray(types) || types.join() !== wanted.join()) {
    const allowed = windows
      ? "full_attention in every fourth layer, sliding_attention in the others"
      : "full_attention";
    config.refuse("layer_types", inWords(types), allowed);
  }
}
