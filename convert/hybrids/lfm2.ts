import { quote } from "../../engine/gguf/errors.ts";
import { type DecoderConfig, MAX } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_TAPS = 16;
const MAX_EXPERTS = 4096;
/** Names in `layer_types` of layers without and with attention. */
const CONV = "conv";
const ATTENTION = "full_attention";
/** GGUF's code for experts weighed by sigmoids. */
const SIGMOID = 2;

interface Experts {
  readonly count: number;
  readonly used: number;
  readonly feedForward: number;
  /** Number of leading layers without experts. */
  readonly denseLayers: number;
}

/** Converts LFM2, dense (`lfm2`) or with experts (`lfm2_moe`). */
export function convertLfm2(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convert(config, list, prefix);
}

export function convertLfm2Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convert(config, list, prefix, readExperts(config));
}

function convert(config: Fields, list: TensorList, prefix: string, experts?: Experts): ModelParts {
  config.mustBe("conv_bias", false, "biases of convolutions are not computed");
  const read = readDecoderConfig(config, {
    keys: { epsilon: "norm_eps", feedForward: feedForwardKey(config) },
    scalings: [],
  });
  const decoder = experts ? read : { ...read, feedForward: adjusted(config, read.feedForward) };
  const taps = config.count("conv_L_cache", MAX_TAPS);
  const attends = readLayers(config, decoder.layers);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}operator_norm.weight`, decoder.hidden);
    if (attends[i]) addAttention(list, decoder, block, `${layer}self_attn.`);
    else addConvolution(list, decoder.hidden, taps, block, `${layer}conv.`);
    list.vector(`${block}ffn_norm.weight`, `${layer}ffn_norm.weight`, decoder.hidden);
    if (experts && i >= experts.denseLayers) {
      addExperts(list, decoder.hidden, experts, block, `${layer}feed_forward.`);
    } else addFeedForward(list, decoder, block, `${layer}feed_forward.`);
  }
  const architecture = experts ? "lfm2moe" : "lfm2";
  // Layers without attention have no KV heads.
  const kvHeads = entry(
    `${architecture}.attention.head_count_kv`,
    "INT32",
    attends.map((own) => own ? decoder.kvHeads : 0),
  );
  return {
    decoder,
    entries: [
      ...decoderEntries(architecture, decoder).map((one) => one.key === kvHeads.key ? kvHeads : one),
      entry(`${architecture}.shortconv.l_cache`, "UINT32", taps),
      ...experts ? expertEntries(architecture, experts) : [],
    ],
    lastNorm: { name: "token_embd_norm.weight", tensor: `${prefix}embedding_norm.weight` },
    tied: config.boolean("tie_embedding", config.boolean("tie_word_embeddings", true)),
  };
}

/** Returns which layers have attention. Older files list their numbers in `full_attn_idxs`. */
function readLayers(config: Fields, layers: number): boolean[] {
  const types = config.get("layer_types");
  if (types === undefined) {
    const indices: unknown = config.get("full_attn_idxs") ?? Array.from({ length: layers }, (_, i) => i);
    const valid = Array.isArray(indices) &&
      indices.every((i) => Number.isInteger(i) && i >= 0 && i < layers);
    if (!valid) config.refuse("full_attn_idxs", inWords(indices), `layers below ${layers}`);
    return Array.from({ length: layers }, (_, i) => (indices as number[]).includes(i));
  }
  if (!Array.isArray(types) || types.length !== layers || types.some((t) => t !== CONV && t !== ATTENTION)) {
    config.refuse(
      "layer_types",
      inWords(types),
      `an array of ${layers} of ${quote(CONV)} and ${quote(ATTENTION)}`,
    );
  }
  return types.map((type) => type === ATTENTION);
}

function feedForwardKey(config: Fields): string {
  return config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
}

/** Returns the actual feed-forward width: two thirds of the key, times a factor, rounded up to a multiple. */
function adjusted(config: Fields, width: number): number {
  if (!config.boolean("block_auto_adjust_ff_dim", true)) return width;
  const factor = config.positive("block_ffn_dim_multiplier", 1024, 1);
  const multiple = config.count("block_multiple_of", MAX.feedForward, 256);
  return multiple * Math.ceil(Math.trunc(factor * Math.trunc(2 * width / 3)) / multiple);
}

function readExperts(config: Fields): Experts {
  config.mustBe("use_expert_bias", true, "a router without a bias of the choice is not converted");
  config.mustBe("norm_topk_prob", true, "weights of the chosen experts are divided by their sum");
  config.mustBe("routed_scaling_factor", 1, "GGUF has no such scale in this architecture");
  const count = config.count("num_experts", MAX_EXPERTS);
  return {
    count,
    used: config.count("num_experts_per_tok", count),
    feedForward: config.count("moe_intermediate_size", MAX.feedForward),
    denseLayers: config.get("num_dense_layers") === 0 ? 0 : config.count("num_dense_layers", MAX_EXPERTS, 2),
  };
}

function expertEntries(architecture: string, { count, used, feedForward, denseLayers }: Experts): Entry[] {
  const counts = {
    expert_count: count,
    expert_used_count: used,
    expert_feed_forward_length: feedForward,
    expert_gating_func: SIGMOID,
    leading_dense_block_count: denseLayers,
  };
  return Object.entries(counts).map(([name, value]) => entry(`${architecture}.${name}`, "UINT32", value));
}

function addAttention(list: TensorList, decoder: DecoderConfig, block: string, from: string): void {
  const { hidden, heads, kvHeads, headDim } = decoder;
  list.matrix(`${block}attn_q`, `${from}q_proj`, heads * headDim, hidden);
  list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_output`, `${from}out_proj`, hidden, heads * headDim);
  list.vector(`${block}attn_q_norm.weight`, `${from}q_layernorm.weight`, headDim);
  list.vector(`${block}attn_k_norm.weight`, `${from}k_layernorm.weight`, headDim);
}

function addConvolution(list: TensorList, hidden: number, taps: number, block: string, from: string): void {
  list.matrix(`${block}shortconv.in_proj`, `${from}in_proj`, 3 * hidden, hidden);
  list.floats(`${block}shortconv.conv.weight`, `${from}conv.weight`, hidden, taps);
  list.matrix(`${block}shortconv.out_proj`, `${from}out_proj`, hidden, hidden);
}

function addFeedForward(list: TensorList, decoder: DecoderConfig, block: string, from: string): void {
  const { hidden, feedForward } = decoder;
  list.matrix(`${block}ffn_gate`, `${from}w1`, feedForward, hidden);
  list.matrix(`${block}ffn_up`, `${from}w3`, feedForward, hidden);
  list.matrix(`${block}ffn_down`, `${from}w2`, hidden, feedForward);
}

function addExperts(
  list: TensorList,
  hidden: number,
  { count, feedForward }: Experts,
  block: string,
  from: string,
): void {
  const each = (part: string) => Array.from({ length: count }, (_, i) => `${from}experts.${i}.${part}`);
  list.floats(`${block}ffn_gate_inp.weight`, `${from}gate.weight`, count, hidden);
  list.vector(`${block}exp_probs_b.bias`, `${from}expert_bias`, count);
  list.experts(`${block}ffn_gate_exps`, each("w1"), feedForward, hidden);
  list.experts(`${block}ffn_up_exps`, each("w3"), feedForward, hidden);
  list.experts(`${block}ffn_down_exps`, each("w2"), hidden, feedForward);
}
