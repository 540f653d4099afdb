import { type DecoderConfig, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import type { Fields } from "../checkpoint/json.ts";
import { decoderEntries } from "../decoder_config.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { entry } from "../write/metadata.ts";
import { addMamba, type MambaConfig, mambaEntries, readMamba } from "./mamba_hybrids.ts";

/**
 * Context length if config.json states none, because the models have no limit; the same as in llama.cpp's converter.
 */
const CONTEXT = 2 ** 20;
const TOP = "backbone.";

/** Converts Mamba2, in transformers' layout. */
export function convertMamba2(config: Fields, list: TensorList): ModelParts {
  config.mustBe("use_bias", false, "biases of Mamba2's matrices are not computed");
  config.mustBe("use_conv_bias", true, "the convolution has a bias");
  config.mustBe("hidden_act", "silu", "no other activation is supported");
  const mamba = readMamba(config, {
    heads: "num_heads",
    headDim: "head_dim",
    groups: "n_groups",
    stateSize: "state_size",
    taps: "conv_kernel",
    limits: "time_step_limit",
  });
  const decoder = readDecoder(config, mamba);
  list.matrix("token_embd", `${TOP}embeddings`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${TOP}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}norm.weight`, decoder.hidden);
    addMamba(list, decoder.hidden, mamba, block, `${layer}mixer.`);
  }
  const unused = /\.(feed_forward_length|attention\.(head_count_kv|\w+_length)|rope\..*)$/;
  return {
    decoder,
    entries: [
      ...decoderEntries("mamba2", decoder).filter(({ key }) => !unused.test(key)),
      entry("mamba2.feed_forward_length", "UINT32", 0),
      ...mambaEntries("mamba2", mamba),
    ],
    lastNorm: { name: "output_norm.weight", tensor: `${TOP}norm_f.weight` },
  };
}

/** Returns the shape of the layers, which have neither attention nor a feed-forward block. */
function readDecoder(config: Fields, { heads, headDim }: MambaConfig): DecoderConfig {
  const hidden = config.count("hidden_size", LIMITS.hidden);
  config.mustBe("expand", heads * headDim / hidden, "the ratio of channels to the embedding's width");
  return {
    layers: config.count("num_hidden_layers", LIMITS.layers),
    hidden,
    feedForward: 0,
    heads: 0,
    kvHeads: 0,
    headDim: 0,
    vocabulary: config.count("vocab_size", LIMITS.vocabulary),
    context: config.count("max_position_embeddings", LIMITS.context, CONTEXT),
    epsilon: config.positive("layer_norm_epsilon", 1, 1e-5),
    rope: { base: 1e4, rotated: 0, scaling: { type: "none" }, fields: config },
  };
}
