import type { DecoderConfig } from "../decoder_config.ts";
import { MAX as LIMITS } from "../bounds.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { readSlidingLayers } from "../layer_types.ts";
import { convertLlama } from "./llama.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX = { experts: 4096, width: 131_072, scale: 1e9 };

/** Granite's dense models: Llama's tensors, and multipliers. */
export function convertGranite(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = { architecture: "granite", interleavedRope: true, headNorms: false } as const;
  const parts = convertLlama(config, list, prefix, traits);
  return { ...parts, entries: [...parts.entries, ...multipliers("granite", config)] };
}

/** Where config.json does not say which layers have a window, this one in so many has none, the first of them. */
const PERIOD = 4;

/** Granite's dense models with windows: scores of heads that only take weight, and layers without positions. */
export function convertGraniteSwa(config: Fields, list: TensorList, prefix: string): ModelParts {
  const architecture = "granite_swa";
  const parts = convertLlama(config, list, prefix, { architecture, interleavedRope: true, headNorms: false });
  const { heads, layers, rope } = parts.decoder;
  for (let i = 0; i < layers; i++) {
    list.vector(`blk.${i}.attn_sinks.weight`, `${prefix}layers.${i}.self_attn.sinks`, heads);
  }
  const windowed = readSlidingLayers(config, layers, (layer) => layer % PERIOD !== 0);
  const turned = readTurned(config, layers, rope.base);
  const key = (name: string) => `${architecture}.${name}`;
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...multipliers(architecture, config),
      entry(key("attention.sliding_window"), "UINT32", config.count("sliding_window", LIMITS.context)),
      entry(key("attention.sliding_window_pattern"), "BOOL", windowed),
      ...turned ? [entry(key("attention.rope_pattern"), "BOOL", turned)] : [],
    ],
  };
}

/** Which layers have positions, where the file says it: by the base of all, or 0 for none. */
function readTurned(config: Fields, layers: number, base: number): boolean[] | undefined {
  const name = "layer_rope_theta";
  const bases = config.get(name);
  if (bases === undefined) return undefined;
  if (Array.isArray(bases) && bases.length === layers && bases.every((one) => one === base || one === 0)) {
    return bases.map((one) => one === base);
  }
  config.refuse(name, inWords(bases), `${base} or 0 for each of the ${layers} layers`);
}

/** Granite 3's mixtures of experts, of which some have one beside them that all rows go through (`granitemoeshared`). */
export function convertGraniteMoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const { count, used } = readGraniteExperts(config) ??
    config.refuse("num_local_experts", "none", "1 at least");
  const shared = config.countFrom0("shared_intermediate_size", MAX.width, 0);
  const architecture = "granitemoe";
  const parts = convertLlama(config, list, prefix, {
    architecture,
    interleavedRope: true,
    headNorms: false,
    feedForward(decoder, block, layer) {
      addGraniteExperts(list, decoder, count, block, layer);
      if (shared > 0) addGraniteFeedForward(list, decoder.hidden, shared, block, layer, "_shexp");
    },
  });
  const counts = {
    expert_count: count,
    expert_used_count: used,
    ...shared > 0 && { expert_shared_feed_forward_length: shared },
  };
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...Object.entries(counts).map(([name, value]) => entry(`${architecture}.${name}`, "UINT32", value)),
      ...multipliers(architecture, config),
    ],
  };
}

/** Of the embedding, of what halves of layers add and of attention's scores, and what logits are divided by. */
export function multipliers(architecture: string, config: Fields): Entry[] {
  const names = {
    embedding_scale: "embedding_multiplier",
    residual_scale: "residual_multiplier",
    "attention.scale": "attention_multiplier",
    logit_scale: "logits_scaling",
  };
  return Object.entries(names).map(([key, name]) =>
    entry(`${architecture}.${key}`, "FLOAT32", config.positive(name, MAX.scale, 1))
  );
}

interface GraniteExperts {
  readonly count: number;
  readonly used: number;
}

/** Undefined where the model has none. */
export function readGraniteExperts(config: Fields): GraniteExperts | undefined {
  const count = config.countFrom0("num_local_experts", MAX.experts, 0);
  return count === 0 ? undefined : { count, used: config.count("num_experts_per_tok", count) };
}

/** A router, and of each expert gate and up in one matrix, and down. */
export function addGraniteExperts(
  list: TensorList,
  { hidden, feedForward: width }: DecoderConfig,
  count: number,
  block: string,
  layer: string,
): void {
  const from = `${layer}block_sparse_moe.`;
  list.floats(`${block}ffn_gate_inp.weight`, `${from}router.layer.weight`, count, hidden);
  const fused = `${from}input_linear.weight`;
  list.fusedExperts(`${block}ffn_gate_exps`, fused, width, hidden, { count, of: 2 * width });
  list.fusedExperts(`${block}ffn_up_exps`, fused, width, hidden, { count, start: width, of: 2 * width });
  list.fusedExperts(`${block}ffn_down_exps`, `${from}output_linear.weight`, hidden, width, { count });
}

/** Gate and up in one matrix, and down. `suffix` is what the names end with. */
export function addGraniteFeedForward(
  list: TensorList,
  hidden: number,
  width: number,
  block: string,
  layer: string,
  suffix: string,
): void {
  const from = `${layer}shared_mlp.`;
  for (const [part, start] of [["ffn_gate", 0], ["ffn_up", width]] as const) {
    const order = { rowOrder: [[start, width]], of: 2 * width } as const;
    list.matrix(block + part + suffix, `${from}input_linear`, width, hidden, order);
  }
  list.matrix(`${block}ffn_down${suffix}`, `${from}output_linear`, hidden, width);
}
