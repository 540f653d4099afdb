import { type DecoderConfig, MAX } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { GEMMA3, PRE_NORM, withNearRope } from "../../engine/architectures/decoders/gemma.ts";
import { addLayer } from "../decoder.ts";
import { Fields, inWords } from "../checkpoint/json.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** Number of row streams that Gemma 3n's layers predict and correct. */
const STREAMS = 4;
/** Gemma 3n's layers per period, if config.json does not list the layers. The last layer of a period has no window. */
const PERIOD = 5;
/** Default number of leading layers with sparse gates, and the default share of gates set to zero. */
const SPARSE = { layers: 10, part: 0.95 };
/** Default rotary base of layers with a window. */
const LOCAL_BASE = 10_000;
const MAX_SOFTCAP = 1e9;
/** Defaults of Gemma 3n's configuration class. */
const DEFAULTS = {
  vocab_size: 262_400,
  vocab_size_per_layer_input: 262_144,
  hidden_size: 2048,
  hidden_size_per_layer_input: 256,
  intermediate_size: 16_384,
  num_hidden_layers: 35,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  num_kv_shared_layers: 15,
  head_dim: 256,
  max_position_embeddings: 32_768,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  rope_local_base_freq: LOCAL_BASE,
  sliding_window: 512,
  final_logit_softcapping: 30,
  laurel_rank: 64,
};

/** Converts Gemma 3n's text part. `prefix` precedes `layers.0`. */
export function convertGemma3n(given: Fields, list: TensorList, prefix: string): ModelParts {
  const config = withNearRope(given, LOCAL_BASE).withDefaults(DEFAULTS);
  refuseOtherModels(config);
  const widths = readWidths(config);
  const known = new Fields(config.file, { ...config.object, intermediate_size: widths[0] });
  const decoder = readDecoderConfig(known, { scalings: [] });
  const perLayer = config.count("hidden_size_per_layer_input", MAX.hidden);
  const rank = config.count("laurel_rank", MAX.hidden);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  addLayerInputs(config, list, decoder, perLayer, prefix);
  for (const [name, module] of [["proj", "projections"], ["unembd_proj", "unembed_projections"]]) {
    const each = Array.from({ length: STREAMS - 1 }, (_, i) => `${prefix}altup_${module}.${i}`);
    list.experts(`altup_${name}`, each, decoder.hidden, decoder.hidden, true);
  }
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    addLayer(list, { ...decoder, feedForward: widths[i] }, GEMMA3.traits, { modules: PRE_NORM }, {
      block,
      from: layer,
    });
    addStreams(list, decoder.hidden, rank, block, layer);
    list.matrix(`${block}inp_gate`, `${layer}per_layer_input_gate`, perLayer, decoder.hidden);
    list.matrix(`${block}proj`, `${layer}per_layer_projection`, decoder.hidden, perLayer);
    list.vector(`${block}post_norm.weight`, `${layer}post_per_layer_input_norm.weight`, decoder.hidden);
  }
  return {
    decoder,
    entries: entriesOf(config, decoder, widths, perLayer),
    tied: config.boolean("tie_word_embeddings", true),
  };
}

function refuseOtherModels(config: Fields): void {
  config.mustBe("hidden_activation", "gelu_pytorch_tanh", "no other activation is supported");
  config.mustBe("altup_num_inputs", STREAMS, "no other number of row streams is supported");
  config.mustBe("altup_active_idx", 0, "layers compute on the first stream");
  config.mustBe("altup_correct_scale", true, "the first stream is scaled");
}

/** Returns each layer's feed-forward width. config.json has one number for all, or an array. */
function readWidths(config: Fields): number[] {
  const layers = config.count("num_hidden_layers", MAX.layers);
  const name = "intermediate_size";
  const widths = config.get(name);
  const all = Array.isArray(widths) ? widths : Array(layers).fill(widths);
  const valid = all.length === layers &&
    all.every((width) => Number.isInteger(width) && width > 0 && width <= MAX.feedForward);
  return valid
    ? all
    : config.refuse(name, inWords(widths), `a whole number above 0, or one for each of the ${layers} layers`);
}

/**
 * Adds the tables of per-layer embeddings to the list. Tokens beyond the table are not text; they get its first row.
 */
function addLayerInputs(
  config: Fields,
  list: TensorList,
  { hidden, layers, vocabulary }: DecoderConfig,
  perLayer: number,
  prefix: string,
): void {
  const all = perLayer * layers;
  const rows = config.count("vocab_size_per_layer_input", vocabulary);
  const beyond = Array.from({ length: vocabulary - rows }, () => [0, 1] as const);
  const order = { of: rows, rowOrder: [[0, rows] as const, ...beyond] };
  list.matrix("per_layer_token_embd", `${prefix}embed_tokens_per_layer`, vocabulary, all, order);
  list.table("per_layer_model_proj", `${prefix}per_layer_model_projection`, all, hidden);
  list.vector("per_layer_proj_norm.weight", `${prefix}per_layer_projection_norm.weight`, perLayer);
}

/** Adds AltUp's and LAuReL's tensors to the list. They are not quantized, as in llama.cpp. */
function addStreams(list: TensorList, hidden: number, rank: number, block: string, layer: string): void {
  const altup = `${layer}altup.`;
  list.vector(`${block}altup_router_norm.weight`, `${altup}router_norm.weight`, hidden);
  list.floats(`${block}altup_router.weight`, `${altup}modality_router.weight`, STREAMS, hidden);
  list.floats(`${block}altup_predict_coef.weight`, `${altup}prediction_coefs.weight`, STREAMS ** 2, STREAMS);
  list.floats(`${block}altup_correct_coef.weight`, `${altup}correction_coefs.weight`, STREAMS, STREAMS);
  list.vector(`${block}altup_correct_scale.weight`, `${altup}correct_output_scale`, hidden);
  list.table(`${block}laurel_l`, `${layer}laurel.linear_left`, rank, hidden);
  list.table(`${block}laurel_r`, `${layer}laurel.linear_right`, hidden, rank);
  list.vector(`${block}laurel_post_norm.weight`, `${layer}laurel.post_laurel_norm.weight`, hidden);
}

function entriesOf(
  config: Fields,
  decoder: DecoderConfig,
  widths: readonly number[],
  perLayer: number,
): Entry[] {
  const { layers } = decoder;
  const key = (name: string) => `gemma3n.${name}`;
  const counts = {
    embedding_length_per_layer_input: perLayer,
    "altup.num_inputs": STREAMS,
    "altup.active_idx": 0,
    "attention.sliding_window": config.count("sliding_window", MAX.context),
    "attention.shared_kv_layers": config.countFrom0("num_kv_shared_layers", layers - 1),
  };
  const reals = {
    "rope.freq_base_swa": config.positive("rope_local_base_freq", MAX.base),
    final_logit_softcapping: config.positive("final_logit_softcapping", MAX_SOFTCAP),
  };
  const slides = readSlidingLayers(config, layers, (layer) => (layer + 1) % PERIOD !== 0);
  const width = key("feed_forward_length");
  return [
    ...decoderEntries("gemma3n", decoder).filter((one) => one.key !== width),
    ...Object.entries(counts).map(([name, value]) => entry(key(name), "UINT32", value)),
    ...Object.entries(reals).map(([name, value]) => entry(key(name), "FLOAT32", value)),
    entry(width, "INT32", [...widths]),
    entry(key("attention.sliding_window_pattern"), "BOOL", slides),
    entry(key("activation_sparsity_scale"), "FLOAT32", readCuts(config, layers)),
  ];
}

/**
 * Returns each layer's cutoff for gates, in standard deviations above the mean. config.json states the share of gates
 * below it.
 */
function readCuts(config: Fields, layers: number): number[] {
  const name = "activation_sparsity_pattern";
  const usual = (layer: number) => layers > SPARSE.layers && layer < SPARSE.layers ? SPARSE.part : 0;
  const parts = config.get(name) ?? Array.from({ length: layers }, (_, layer) => usual(layer));
  const isPart = (part: unknown) => typeof part === "number" && part >= 0 && part < 1;
  if (!Array.isArray(parts) || parts.length !== layers || !parts.every(isPart)) {
    config.refuse(name, inWords(parts), `a number from 0 to below 1 for each of the ${layers} layers`);
  }
  return parts.map(deviations);
}

/** Returns the standard normal quantile of `part`, by Newton's method. */
function deviations(part: number): number {
  if (part === 0) return -Infinity;
  let x = 0;
  for (let step = 0; step < 50; step++) {
    const density = Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
    // The distribution's series: x + x³/3 + x⁵/(3·5) + ...
    let [term, sum] = [x, x];
    for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(sum); k += 2) sum += term *= x * x / k;
    x += (part - 0.5 - density * sum) / density;
  }
  return x;
}
