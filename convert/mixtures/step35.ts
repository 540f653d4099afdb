import { type Checkpoint, type DecoderConfig, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { STEP35 } from "../../engine/architectures/decoders/gated_heads.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { addFeedForward, convertDecoder, type LayerNames } from "../decoder.ts";
import { llama3Factors, readDecoderConfig } from "../decoder_config.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Entry, entry } from "../write/metadata.ts";
import { addSharedExperts, expertEntries, type ExpertsConfig, MAX, readCounts } from "./experts.ts";
import { draftLayers, SIGMOID, withDenseCount } from "./sigmoid_experts.ts";
import { readRopes, rotatedOf, windowEntries } from "./windowed.ts";

/** Layers without a window rotate this share of each head. GGUF's readers expect it. */
const SHARE = 0.5;

/** Converts the text part of Step 3.5 and 3.7 Flash. Sources: Hugging Face transformers, models/step3p7; llama.cpp,
 * conversion/step3.py. */
export function convertStep35(given: Fields, list: TensorList, prefix: string): ModelParts {
  const layers = given.count("num_hidden_layers", LIMITS.layers);
  const config = withDenseCount(withFields(given, layers), layers);
  for (const name of ["norm_expert_weight", "use_moe_router_bias"]) {
    config.mustBe(name, true, "GGUF's readers expect it");
  }
  config.mustBe("moe_router_activation", "sigmoid", "sigmoids weigh experts");
  const headDim = config.count("head_dim", LIMITS.headDim);
  config.mustBe("query_pre_attn_scalar", headDim, "GGUF files have no key for it");
  const slides = readSlidingLayers(config, layers);
  const { full, near } = readRopes(config, true);
  const shares = [[full, SHARE], [near!, 1]] as const;
  for (const [rope, share] of shares) {
    if (rotatedOf(rope, headDim) !== share * headDim) {
      rope.refuse("partial_rotary_factor", inWords(rope.get("partial_rotary_factor")), String(share));
    }
  }
  const experts = readCounts(config, { count: "n_routed_experts" });
  const width = config.count("share_expert_dim", MAX.feedForward);
  const dense = config.countFrom0("first_k_dense_replace", layers);
  const nearHeads = config.count("num_sliding_attention_heads", LIMITS.heads);
  const checkpoint: Checkpoint = {
    shiftedNorms: true,
    modules: { attn_gate: "self_attn.g_proj" },
    prepare: (config) => config.with({ rope_parameters: { rope_theta: full.get("rope_theta") } }),
    widths: (_, { heads, kvHeads, feedForward }) =>
      slides.map((slides) => ({ heads: slides ? nearHeads : heads, kvHeads, feedForward })),
  };
  const parts = convertDecoder(config, list, prefix, STEP35, checkpoint, {
    feedForward(names, decoder, layer) {
      if (layer < dense) return addFeedForward(list, decoder, names);
      addStackedExperts(list, decoder, experts, names);
      addSharedExperts(list, decoder, width, names.block, `${names.from}share_expert.`);
    },
  });
  addFactors(config, full, headDim, list);
  const key = (name: string) => `step35.${name}`;
  return {
    ...parts,
    leftOut: draftLayers(config, prefix, layers),
    entries: [
      ...parts.entries,
      ...expertEntries("step35", experts),
      entry(key("expert_gating_func"), "UINT32", SIGMOID),
      entry(key("expert_shared_count"), "UINT32", 1),
      entry(key("expert_shared_feed_forward_length"), "UINT32", width),
      entry(key("expert_weights_norm"), "BOOL", true),
      entry(
        key("expert_weights_scale"),
        "FLOAT32",
        config.positive("moe_router_scaling_factor", LIMITS.scale, 1),
      ),
      entry(key("leading_dense_block_count"), "UINT32", dense),
      ...windowEntries("step35", config, slides, near!),
      ...limitEntries(config, layers),
    ],
  };
}

/** Adds the router and the experts. The checkpoint stacks all experts' gate, up and down matrices in one tensor each. */
function addStackedExperts(
  list: TensorList,
  { hidden }: DecoderConfig,
  { count, feedForward }: ExpertsConfig,
  { block, from }: LayerNames,
): void {
  const moe = `${from}moe.`;
  list.floats(`${block}ffn_gate_inp.weight`, `${moe}gate.weight`, count, hidden);
  list.vector(`${block}exp_probs_b.bias`, `${moe}router_bias`, count);
  for (const part of ["gate", "up", "down"]) {
    const [rows, columns] = part === "down" ? [hidden, feedForward] : [feedForward, hidden];
    const source = list.finder.stack(`${moe}${part}_proj.weight`, [count, rows, columns]);
    list.stacked(`${block}ffn_${part}_exps`, source, { count, rows, columns });
  }
}

/**
 * Adds the tensor of Llama 3's rotary factors for layers without a window. These layers rotate half of each head, so
 * readers use only the first half of the tensor.
 */
function addFactors(config: Fields, full: Fields, headDim: number, list: TensorList): void {
  const own = config.with({ rope_parameters: full.object });
  const { rope } = readDecoderConfig(own, { scalings: ["llama3"] });
  if (rope.scaling.type !== "llama3") return;
  const factors = new Float32Array(headDim / 2).fill(1);
  factors.set(llama3Factors(rope, rope.scaling));
  list.made("rope_freqs.weight", factors);
}

function limitEntries(config: Fields, layers: number): Entry[] {
  return Object.entries({ swiglu_limits: "exp", swiglu_limits_shared: "shexp" }).flatMap(([name, part]) => {
    if (!config.has(name)) return [];
    const limits = config.get(name);
    const valid = (limit: unknown) =>
      limit === null || typeof limit === "number" && limit >= 0 && limit <= LIMITS.scale;
    if (!Array.isArray(limits) || limits.length < layers || !limits.every(valid)) {
      config.refuse(name, inWords(limits), `a number or null for each of the ${layers} layers`);
    }
    return [
      entry(`step35.swiglu_clamp_${part}`, "FLOAT32", limits.slice(0, layers).map((limit) => limit ?? 0)),
    ];
  });
}

/**
 * Returns config.json with transformers' field names instead of the publisher's. Lists may also have entries for draft
 * layers, which are cut off.
 */
function withFields(config: Fields, layers: number): Fields {
  const cut = (value: unknown) => Array.isArray(value) ? value.slice(0, layers) : value;
  const kinds = cut(config.get("layer_types"));
  const first = (kind: string) => Array.isArray(kinds) ? Math.max(0, kinds.indexOf(kind)) : 0;
  const of = (name: string, kind: string) => {
    const value = config.get(name);
    return Array.isArray(value) ? value[first(kind)] : value;
  };
  const rope = (kind: string) => ({
    rope_theta: of("rope_theta", kind),
    partial_rotary_factor: of("partial_rotary_factors", kind),
  });
  const other = config.fields("attention_other_setting");
  const sparse = config.get("moe_layers_enum");
  const chosen = typeof sparse === "string"
    ? sparse.split(",").map(Number)
    : Array.isArray(sparse)
    ? sparse
    : undefined;
  const known = config.with({ layer_types: kinds, mlp_layer_types: cut(config.get("mlp_layer_types")) })
    .withDefaults({
      num_key_value_heads: config.get("num_attention_groups"),
      n_routed_experts: config.get("moe_num_experts"),
      num_experts_per_tok: config.get("moe_top_k"),
      num_sliding_attention_heads: other?.get("num_attention_heads") ?? config.get("num_attention_heads"),
      mlp_layer_types: chosen &&
        Array.from({ length: layers }, (_, i) => chosen.includes(i) ? "sparse" : "dense"),
      rope_parameters: {
        full_attention: { ...rope("full_attention"), ...config.fields("rope_scaling")?.object },
        sliding_attention: rope("sliding_attention"),
      },
    });
  other?.mustBe("num_attention_groups", known.get("num_key_value_heads"), "KV heads are equal in all layers");
  return known.with({ rope_scaling: null, rope_theta: null });
}
