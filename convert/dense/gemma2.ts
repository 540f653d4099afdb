import { MAX } from "../bounds.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { addGemmaTensors, norm, refuseOtherLayers } from "./gemma3.ts";
import { Fields } from "../checkpoint/json.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** Every second layer has no window. */
const PERIOD = 2;
/** Layers of the 27B, whose queries are scaled by the width that a head has of the embedding. */
const LARGEST = 46;
const ACTIVATION = "gelu_pytorch_tanh";
/** Where config.json does not say. Source: the defaults of Gemma 2's configuration class. */
const DEFAULTS = {
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 256,
  vocab_size: 256_000,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  hidden_activation: ACTIVATION,
  sliding_window: 4096,
  query_pre_attn_scalar: 256,
  attn_logit_softcapping: 50,
  final_logit_softcapping: 30,
};
const MAX_SOFTCAP = 1e4;

/** The tensors and keys of Gemma 2. */
export function convertGemma2(given: Fields, list: TensorList, prefix: string): ModelParts {
  const config = withDefaults(given);
  config.mustBe("hidden_activation", ACTIVATION, "no other activation is computed");
  refuseOtherLayers(config, PERIOD);
  const decoder = readDecoderConfig(config, { scalings: [] });
  const { hidden, heads, headDim } = decoder;
  const width = decoder.layers === LARGEST ? Math.floor(hidden / heads) : headDim;
  config.mustBe("query_pre_attn_scalar", width, "GGUF's readers take this scale of queries");
  addGemmaTensors(list, decoder, prefix, { headNorms: false });
  const softcap = (name: string) => entry(`gemma2.${name}`, "FLOAT32", config.positive(name, MAX_SOFTCAP));
  return {
    decoder,
    entries: [
      ...decoderEntries("gemma2", decoder),
      entry("gemma2.attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)),
      softcap("attn_logit_softcapping"),
      softcap("final_logit_softcapping"),
    ],
    outputNorm: norm,
    tied: config.boolean("tie_word_embeddings", true),
  };
}

/** Files name the activation twice. */
function withDefaults(config: Fields): Fields {
  config.mustBe("hidden_act", ACTIVATION, "no other activation is computed");
  const known = Object.entries(config.object).filter(([name, value]) =>
    value !== null && name !== "hidden_act"
  );
  return new Fields(config.file, { ...DEFAULTS, ...Object.fromEntries(known) });
}
