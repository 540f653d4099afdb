import { type DecoderConfig, MAX } from "../../engine/architectures/checkpoint.ts";
import { readDecoderConfig } from "../decoder_config.ts";
import { addExperts } from "../mixtures/experts.ts";
import { Fields } from "../checkpoint/json.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_EXPERTS = 4096;
const MAX_SOFTCAP = 1e9;
/** Divisor of the frequencies of pairs that are not rotated: it makes their angles negligible. */
const STILL = 1e30;

/** Values of Gemma 4's config.json. Layers with a window have the decoder's heads and rotary positions. */
interface Gemma4Config {
  readonly decoder: DecoderConfig;
  /** Whether each layer has a window. */
  readonly sliding: readonly boolean[];
  readonly full: { readonly headDim: number; readonly kvHeads: number; readonly keysAsValues: boolean };
  /** Number of last layers that read the KV cache of earlier ones. */
  readonly shared: number;
  /** Number of columns of each layer's own embedding; 0: none. */
  readonly perLayer: number;
  readonly widths: readonly number[];
  readonly experts?: { readonly count: number; readonly used: number; readonly feedForward: number };
}

/** Converts Gemma 4's text part. `prefix` precedes `layers.0`. */
export function convertGemma4(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("hidden_activation", "gelu_pytorch_tanh", "no other activation is supported");
  const ropes = config.fields("rope_parameters") ??
    config.refuse("rope_parameters", "nothing", "an object of full_attention and sliding_attention");
  const ropeOf = (kind: string) => ropes.fields(kind) ?? ropes.refuse(kind, "nothing", "an object");
  const [near, far] = [ropeOf("sliding_attention"), ropeOf("full_attention")];
  far.mustBe("rope_type", "proportional", "no other positions of full layers are computed");
  const c = readGemma4(config, near);
  const { hidden, vocabulary, layers } = c.decoder;

  list.matrix("token_embd", `${prefix}embed_tokens`, vocabulary, hidden);
  const pairs = c.full.headDim / 2;
  const turned = Math.floor(pairs * far.positive("partial_rotary_factor", 1, 0.25));
  list.made("rope_freqs.weight", Float32Array.from({ length: pairs }, (_, i) => i < turned ? 1 : STILL));
  if (c.perLayer > 0) {
    const all = c.perLayer * layers;
    config.mustBe("vocab_size_per_layer_input", vocabulary, "each token has an embedding of each layer");
    list.matrix("per_layer_token_embd", `${prefix}embed_tokens_per_layer`, vocabulary, all);
    list.matrix("per_layer_model_proj", `${prefix}per_layer_model_projection`, all, hidden);
    list.vector("per_layer_proj_norm.weight", `${prefix}per_layer_projection_norm.weight`, c.perLayer);
  }
  for (let i = 0; i < layers; i++) addLayer(list, c, i, `blk.${i}.`, `${prefix}layers.${i}.`);
  const [first, last] = [layers - c.shared, layers - 1];
  const isShared = Array.from({ length: last - first + 1 }, (_, i) => first + i).join("|");
  return {
    decoder: c.decoder,
    entries: entriesOf(config, c, near, far),
    tied: config.boolean("tie_word_embeddings", true),
    leftOut: c.shared === 0 ? [] : [[
      "keys and values that are never read",
      new RegExp(`\\.layers\\.(${isShared})\\.self_attn\\.(k_proj|v_proj|k_norm)\\.`),
    ]],
  };
}

function readGemma4(config: Fields, near: Fields): Gemma4Config {
  const known = { ...config.object, rope_parameters: near.object };
  const decoder = readDecoderConfig(new Fields(config.file, known), { scalings: [] });
  const sliding = readSlidingLayers(config, decoder.layers);
  const keysAsValues = config.boolean("attention_k_eq_v", false);
  const kvHeads = keysAsValues
    ? config.count("num_global_key_value_heads", decoder.heads, decoder.kvHeads)
    : decoder.kvHeads;
  const shared = orNone(config, "num_kv_shared_layers", decoder.layers - 1);
  const wide = config.boolean("use_double_wide_mlp", false);
  return {
    decoder,
    sliding,
    full: { headDim: config.count("global_head_dim", MAX.headDim, decoder.headDim), kvHeads, keysAsValues },
    shared,
    perLayer: orNone(config, "hidden_size_per_layer_input", MAX.hidden),
    widths: sliding.map((_, i) => decoder.feedForward * (wide && i >= decoder.layers - shared ? 2 : 1)),
    experts: config.boolean("enable_moe_block", false) ? readExperts(config) : undefined,
  };
}

function readExperts(config: Fields): Gemma4Config["experts"] {
  const count = config.count("num_experts", MAX_EXPERTS);
  const width = config.has("expert_intermediate_size") ? "expert_intermediate_size" : "moe_intermediate_size";
  return {
    count,
    used: config.count("top_k_experts", count),
    feedForward: config.count(width, MAX.feedForward),
  };
}

/** Returns the key's count, which may be 0. */
function orNone(config: Fields, name: string, max: number): number {
  return config.get(name) === 0 ? 0 : config.has(name) ? config.count(name, max) : 0;
}

function addLayer(list: TensorList, c: Gemma4Config, i: number, block: string, layer: string): void {
  const { hidden, heads, layers } = c.decoder;
  const sliding = c.sliding[i];
  const { headDim, kvHeads } = sliding ? c.decoder : c.full;
  const from = `${layer}self_attn.`;
  const norm = (name: string, module: string, length = hidden) =>
    list.vector(`${block}${name}.weight`, `${module}.weight`, length);
  norm("attn_norm", `${layer}input_layernorm`);
  norm("post_attention_norm", `${layer}post_attention_layernorm`);
  norm("ffn_norm", `${layer}pre_feedforward_layernorm`);
  norm("post_ffw_norm", `${layer}post_feedforward_layernorm`);
  list.matrix(`${block}attn_q`, `${from}q_proj`, heads * headDim, hidden);
  norm("attn_q_norm", `${from}q_norm`, headDim);
  if (i < layers - c.shared) {
    list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden);
    norm("attn_k_norm", `${from}k_norm`, headDim);
    if (sliding || !c.full.keysAsValues) {
      list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
    }
  }
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
  list.matrix(`${block}ffn_gate`, `${layer}mlp.gate_proj`, c.widths[i], hidden);
  list.matrix(`${block}ffn_up`, `${layer}mlp.up_proj`, c.widths[i], hidden);
  list.matrix(`${block}ffn_down`, `${layer}mlp.down_proj`, hidden, c.widths[i]);
  if (c.experts) addMixture(list, c.decoder, c.experts, block, layer);
  if (c.perLayer > 0) {
    list.matrix(`${block}inp_gate`, `${layer}per_layer_input_gate`, c.perLayer, hidden);
    list.matrix(`${block}proj`, `${layer}per_layer_projection`, hidden, c.perLayer);
    norm("post_norm", `${layer}post_per_layer_input_norm`);
  }
  list.vector(`${block}layer_output_scale.weight`, `${layer}layer_scalar`, 1);
}

function addMixture(
  list: TensorList,
  decoder: DecoderConfig,
  experts: NonNullable<Gemma4Config["experts"]>,
  block: string,
  layer: string,
): void {
  const { hidden } = decoder;
  const norms = {
    post_ffw_norm_1: "post_feedforward_layernorm_1",
    pre_ffw_norm_2: "pre_feedforward_layernorm_2",
    post_ffw_norm_2: "post_feedforward_layernorm_2",
  };
  for (const [name, tensor] of Object.entries(norms)) {
    list.vector(`${block}${name}.weight`, `${layer}${tensor}.weight`, hidden);
  }
  addExperts(list, decoder, experts, block, layer, { router: `${layer}router.proj` });
  list.vector(`${block}ffn_gate_inp.scale`, `${layer}router.scale`, hidden);
  list.vector(`${block}ffn_down_exps.scale`, `${layer}router.per_expert_scale`, experts.count);
}

function entriesOf(config: Fields, c: Gemma4Config, near: Fields, far: Fields): Entry[] {
  const { decoder, full, sliding, experts } = c;
  const counts = {
    block_count: decoder.layers,
    context_length: decoder.context,
    embedding_length: decoder.hidden,
    embedding_length_per_layer_input: c.perLayer,
    "attention.head_count": decoder.heads,
    "attention.key_length": full.headDim,
    "attention.value_length": full.headDim,
    "attention.key_length_swa": decoder.headDim,
    "attention.value_length_swa": decoder.headDim,
    "attention.sliding_window": config.count("sliding_window", MAX.context),
    "attention.shared_kv_layers": c.shared,
    "rope.dimension_count": full.headDim,
    "rope.dimension_count_swa": decoder.rope.rotated,
    ...experts && {
      expert_count: experts.count,
      expert_used_count: experts.used,
      expert_feed_forward_length: experts.feedForward,
    },
    vocab_size: decoder.vocabulary,
  };
  const reals = {
    "rope.freq_base": far.positive("rope_theta", MAX.base),
    "rope.freq_base_swa": near.positive("rope_theta", MAX.base),
    "attention.layer_norm_rms_epsilon": decoder.epsilon,
    ...config.has("final_logit_softcapping") && {
      final_logit_softcapping: config.positive("final_logit_softcapping", MAX_SOFTCAP),
    },
  };
  const kvHeads = sliding.map((slides) => slides ? decoder.kvHeads : full.kvHeads);
  const key = (name: string) => `gemma4.${name}`;
  return [
    ...Object.entries(counts).map(([name, value]) => entry(key(name), "UINT32", value)),
    ...Object.entries(reals).map(([name, value]) => entry(key(name), "FLOAT32", value)),
    entry(key("feed_forward_length"), "INT32", [...c.widths]),
    entry(key("attention.head_count_kv"), "INT32", kvHeads),
    entry(key("attention.sliding_window_pattern"), "BOOL", [...sliding]),
  ];
}
