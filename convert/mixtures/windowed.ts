/** Converts mixtures of experts in which window layers and full layers have different heads and rotary settings. */
import { type Checkpoint, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { LAGUNA } from "../../engine/architectures/decoders/gated_heads.ts";
import { MIMO2 } from "../../engine/architectures/decoders/sigmoid_experts.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { addFeedForward, convertDecoder } from "../decoder.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Entry, entry } from "../write/metadata.ts";
import { addExperts, expertEntries, MAX, readCounts } from "./experts.ts";
import { convertSharedExperts, SIGMOID, withDenseCount } from "./sigmoid_experts.ts";

/** Rotary settings of full layers and of window layers. */
interface Ropes {
  readonly full: Fields;
  /** Undefined if no layer has a window. */
  readonly near?: Fields;
}

export function readRopes(config: Fields, windows: boolean): Ropes {
  const ropes = config.fields("rope_parameters") ??
    config.refuse("rope_parameters", "nothing", "an object of full_attention and sliding_attention");
  const of = (kind: string) => ropes.fields(kind) ?? ropes.refuse(kind, "nothing", "an object");
  const near = windows ? of("sliding_attention") : undefined;
  near?.mustBe("rope_type", "default", "layers with a window extend no context");
  return { full: of("full_attention"), near };
}

/** Returns how many dimensions of a head are rotated. */
export function rotatedOf(rope: Fields, headDim: number): number {
  return Math.floor(headDim * rope.positive("partial_rotary_factor", 1, 1));
}

/** Returns config.json in which `rope_parameters` has only the settings of full layers. */
function withRope(config: Fields, rope: Fields, headDim: number): Fields {
  const partial_rotary_factor = rotatedOf(rope, headDim) / headDim;
  return config.with({ rope_parameters: { ...rope.object, partial_rotary_factor } });
}

/** Converts Laguna. Sources: Hugging Face transformers, models/laguna; llama.cpp, conversion/laguna.py. */
export function convertLaguna(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("moe_apply_router_weight_on_input", false, "weights scale the experts' outputs");
  config.mustBe("moe_router_logit_softcapping", 0, "logits of routers are not bounded");
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const slides = readSlidingLayers(config, layers, () => false);
  const windows = slides.includes(true);
  const headDim = config.count("head_dim", LIMITS.headDim);
  const { full, near } = readRopes(config, windows);
  const heads = readHeads(config, layers);
  const known = withRope(withDenseCount(config, layers), full, headDim);
  const width = config.count("shared_expert_intermediate_size", MAX.feedForward);
  const checkpoint: Checkpoint = {
    modules: { attn_gate: "self_attn.g_proj" },
    traits: () => ({ outputGate: { activation: "softplus", perHead: gatesAreOfHeads(config, layers) } }),
    widths: (_, { kvHeads, feedForward }) => heads.map((heads) => ({ heads, kvHeads, feedForward })),
  };
  const key = (name: string) => `laguna.${name}`;
  return convertSharedExperts(known, list, prefix, LAGUNA, checkpoint, {
    ...readCounts(config),
    shared: 1,
    dense: known.countFrom0("first_k_dense_replace", layers),
    divided: true,
    scale: config.positive("moe_routed_scaling_factor", LIMITS.scale, 1),
    bias: "experts.e_score_correction_bias",
    sharedModule: "shared_expert",
    sharedWidth: width,
  }, [
    entry(key("expert_shared_feed_forward_length"), "UINT32", width),
    ...near
      ? [
        ...windowEntries("laguna", config, slides, near),
        entry(key("rope.dimension_count_swa"), "UINT32", rotatedOf(near, headDim)),
      ]
      : [],
  ]);
}

/** Returns the number of heads of each layer. */
function readHeads(config: Fields, layers: number): number[] {
  const name = "num_attention_heads_per_layer";
  if (!config.has(name)) {
    return Array<number>(layers).fill(config.count("num_attention_heads", LIMITS.heads));
  }
  const heads = config.get(name);
  const valid = (count: unknown) =>
    Number.isInteger(count) && Number(count) > 0 && Number(count) <= LIMITS.heads;
  if (Array.isArray(heads) && heads.length === layers && heads.every(valid)) return heads;
  return config.refuse(name, inWords(heads), `a number of heads for each of the ${layers} layers`);
}

/** Returns true for one gate per head, false for one gate per column. Throws if layers differ. */
function gatesAreOfHeads(config: Fields, layers: number): boolean {
  const gating = config.get("gating") ?? true;
  const types = config.get("gating_types") ?? Array(layers).fill(gating);
  const first = Array.isArray(types) ? String(types[0]).replace("_", "-") : undefined;
  const alike = Array.isArray(types) && types.every((type) => type === types[0]);
  if (alike && (first === "true" || first === "per-head")) return true;
  if (alike && first === "per-element") return false;
  return config.refuse(
    "gating",
    inWords(gating),
    `true, "per-head" or "per-element", the same in all layers`,
  );
}

export function windowEntries(
  architecture: string,
  config: Fields,
  slides: readonly boolean[],
  near: Fields,
  window = config.count("sliding_window", LIMITS.context),
): Entry[] {
  const key = (name: string) => `${architecture}.${name}`;
  return [
    entry(key("attention.sliding_window"), "UINT32", window),
    entry(key("attention.sliding_window_pattern"), "BOOL", slides),
    entry(key("rope.freq_base_swa"), "FLOAT32", near.positive("rope_theta", LIMITS.base)),
  ];
}

/**
 * Converts MiMo V2 Flash. Sources: Hugging Face transformers, models/mimo_v2_flash; llama.cpp, conversion/mimo.py. As
 * in transformers, `sliding_window_size` does not count the row itself, so the file's window is larger by one.
 */
export function convertMimo2(given: Fields, list: TensorList, prefix: string): ModelParts {
  const config = withTypes(given);
  for (const name of ["n_group", "topk_group", "routed_scaling_factor"]) {
    config.mustBe(name, 1, "GGUF's readers have no key for it");
  }
  config.mustBe("norm_topk_prob", true, "the weights of chosen experts are divided by their sum");
  config.mustBe("add_full_attention_sink_bias", false, "only layers with a window have sinks");
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const slides = readSlidingLayers(config, layers);
  const headDim = config.count("head_dim", LIMITS.headDim);
  const { full, near } = readRopes(config, true);
  if (rotatedOf(near!, headDim) !== rotatedOf(full, headDim)) {
    near!.refuse(
      "partial_rotary_factor",
      inWords(near!.get("partial_rotary_factor")),
      "the same in all layers",
    );
  }
  const experts = readCounts(config, { count: "n_routed_experts" });
  const sparse = config.get("mlp_layer_types");
  const isSparse = (layer: number) => Array.isArray(sparse) && sparse[layer] === "sparse";
  const nearKv = config.count("swa_num_key_value_heads", LIMITS.heads);
  const checkpoint: Checkpoint = {
    keys: { valueDim: "v_head_dim" },
    widths: (_, { heads, kvHeads, feedForward }) =>
      slides.map((slides) => ({ heads, kvHeads: slides ? nearKv : kvHeads, feedForward })),
  };
  const window = config.has("sliding_window_size")
    ? config.count("sliding_window_size", LIMITS.context) + 1
    : undefined;
  const parts = convertDecoder(withRope(config, full, headDim), list, prefix, MIMO2, checkpoint, {
    feedForward(names, decoder, layer) {
      const { block, from } = names;
      if (slides[layer]) {
        list.vector(`${block}attn_sinks.weight`, `${from}self_attn.attention_sink_bias`, decoder.heads);
      }
      if (!isSparse(layer)) return addFeedForward(list, decoder, names);
      addExperts(list, decoder, experts, block, `${from}mlp.`);
      list.vector(`${block}exp_probs_b.bias`, `${from}mlp.gate.e_score_correction_bias`, experts.count);
    },
  });
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...expertEntries("mimo2", experts),
      entry("mimo2.expert_gating_func", "UINT32", SIGMOID),
      entry(
        "mimo2.attention.value_scale",
        "FLOAT32",
        config.positive("attention_value_scale", LIMITS.scale, 1),
      ),
      ...windowEntries("mimo2", config, slides, near!, window),
    ],
  };
}

/** Returns config.json with transformers' field names instead of the publisher's. */
function withTypes(config: Fields): Fields {
  const named = (name: string, [zero, one]: readonly [string, string]) => {
    const values = config.get(name);
    return Array.isArray(values)
      ? values.map((value) => value === 0 ? zero : value === 1 ? one : value)
      : undefined;
  };
  const own = config.get("partial_rotary_factor");
  const rope = (name: string) => ({ rope_theta: config.get(name), partial_rotary_factor: own });
  return config.withDefaults({
    layer_types: named("hybrid_layer_pattern", ["full_attention", "sliding_attention"]),
    mlp_layer_types: named("moe_layer_freq", ["dense", "sparse"]),
    rope_parameters: { full_attention: rope("rope_theta"), sliding_attention: rope("swa_rope_theta") },
    rms_norm_eps: config.get("layernorm_epsilon"),
    swa_num_key_value_heads: 2 * config.count("num_key_value_heads", LIMITS.heads),
  });
}
