import type { DecoderConfig } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import {
  addGraniteExperts,
  addGraniteFeedForward,
  multipliers,
  readGraniteExperts,
} from "../mixtures/granite_moe.ts";
import { type Fields, isObject } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import { interleavedPairs } from "../order.ts";
import type { TensorList } from "../tensor_list.ts";

/** Shape of a Mamba2 layer. */
export interface MambaConfig {
  readonly heads: number;
  readonly headDim: number;
  readonly groups: number;
  readonly stateSize: number;
  readonly taps: number;
}

export type Mixer = "mamba" | "attention" | "feed-forward" | "experts";

export const MAX = {
  layers: 4096,
  heads: 4096,
  headDim: 4096,
  stateSize: 4096,
  taps: 64,
  experts: 4096,
  width: 131_072,
  scale: 1e9,
};

/** Converts Granite 4's hybrids, with a dense feed-forward block or with experts and a shared expert. */
export function convertGraniteHybrid(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("mamba_proj_bias", false, "biases of Mamba2's matrices are not computed");
  config.mustBe("mamba_conv_bias", true, "the convolution has a bias");
  const shared = config.count("shared_intermediate_size", MAX.width);
  const experts = readGraniteExperts(config);
  const read = readDecoderConfig(config, { scalings: ["linear"] });
  const decoder = { ...read, ...!experts && { feedForward: shared } };
  const { hidden, layers, feedForward } = decoder;
  const mamba = readMamba(config, {
    heads: "mamba_n_heads",
    headDim: "mamba_d_head",
    groups: "mamba_n_groups",
    stateSize: "mamba_d_state",
    taps: "mamba_d_conv",
    limits: "time_step_limit",
  });
  const mixers = readLayerTypes(config, layers);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, hidden);
  for (const [i, mixer] of mixers.entries()) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}input_layernorm.weight`, hidden);
    if (mixer === "mamba") addMamba(list, hidden, mamba, block, `${layer}mamba.`);
    else addAttention(list, decoder, block, `${layer}self_attn.`, true);
    list.vector(`${block}ffn_norm.weight`, `${layer}post_attention_layernorm.weight`, hidden);
    if (experts) addGraniteExperts(list, decoder, experts.count, block, layer);
    addGraniteFeedForward(list, hidden, shared, block, layer, experts ? "_shexp" : "");
  }
  const key = (name: string) => `granitehybrid.${name}`;
  const positions = config.string("position_embedding_type", "nope") === "rope";
  const entries = [
    ...hybridEntries("granitehybrid", decoder, mamba, mixers),
    entry(key("feed_forward_length"), "UINT32", feedForward),
    ...experts
      ? [
        entry(key("expert_count"), "UINT32", experts.count),
        entry(key("expert_used_count"), "UINT32", experts.used),
        entry(key("expert_shared_feed_forward_length"), "UINT32", shared),
      ]
      : [],
    entry(key("rope.scaling.finetuned"), "BOOL", positions),
    ...multipliers("granitehybrid", config),
  ];
  return { decoder, entries };
}

/** Names of config.json's keys for Mamba2. */
type MambaKeys = Readonly<Record<keyof MambaConfig, string>> & {
  /** Key of the bounds on step sizes. */
  readonly limits: string;
};

export function readMamba(config: Fields, names: MambaKeys): MambaConfig {
  const heads = config.count(names.heads, MAX.heads);
  const groups = config.count(names.groups, heads);
  if (heads % groups !== 0) config.refuse(names.groups, String(groups), `a divisor of the ${heads} heads`);
  refuseStepLimits(config, names.limits);
  return {
    heads,
    groups,
    headDim: config.count(names.headDim, MAX.headDim),
    stateSize: config.count(names.stateSize, MAX.stateSize),
    taps: config.count(names.taps, MAX.taps),
  };
}

/** Bound of step sizes that has no effect. */
const NO_LIMIT = 1e9;

/**
 * Throws ConvertError for bounded step sizes, because GGUF has no key for bounds. 0 and infinity bound nothing; files
 * write them as numbers or strings.
 */
function refuseStepLimits(config: Fields, name: string): void {
  if (!config.has(name)) return;
  const limits = config.get(name);
  const numbers = Array.isArray(limits) ? limits.map(numberOf) : [];
  if (numbers.length === 2 && numbers[0] === 0 && numbers[1] >= NO_LIMIT) return;
  config.refuse(
    name,
    JSON.stringify(limits).slice(0, 80),
    "0 and Infinity, because step sizes are not bounded",
  );
}

/** Returns a value as a number. Newer files wrap numbers that JSON lacks. */
function numberOf(value: unknown): number {
  const wrapped = isObject(value) ? value.__float__ : value;
  return typeof wrapped === "number" || typeof wrapped === "string" ? Number(wrapped) : NaN;
}

export function addMamba(
  list: TensorList,
  hidden: number,
  mamba: MambaConfig,
  block: string,
  from: string,
): void {
  const { heads, headDim, groups, stateSize } = mamba;
  const inner = heads * headDim;
  // Rows in GGUF's order: gates, channels, B and C, step sizes.
  list.matrix(`${block}ssm_in`, `${from}in_proj`, 2 * (inner + groups * stateSize) + heads, hidden);
  addScan(list, mamba, block, from);
  list.vector(`${block}ssm_norm.weight`, `${from}norm.weight`, inner, { shape: [inner / groups, groups] });
  list.matrix(`${block}ssm_out`, `${from}out_proj`, hidden, inner);
}

/** Adds the tensors between Mamba2's two matrices to the list, except the norm. */
export function addScan(
  list: TensorList,
  { heads, headDim, groups, stateSize, taps }: MambaConfig,
  block: string,
  from: string,
): void {
  const channels = heads * headDim + 2 * groups * stateSize;
  const shape = [1, heads];
  list.floats(`${block}ssm_conv1d.weight`, `${from}conv1d.weight`, channels, taps);
  list.vector(`${block}ssm_conv1d.bias`, `${from}conv1d.bias`, channels);
  list.vector(`${block}ssm_dt.bias`, `${from}dt_bias`, heads);
  list.vector(`${block}ssm_a`, `${from}A_log`, heads, { map: (log) => -Math.exp(log), shape });
  list.vector(`${block}ssm_d`, `${from}D`, heads, { shape });
}

/** Adds the matrices of attention to the list. With `pairs`, GGUF rotates the pairs (2i, 2i + 1). */
export function addAttention(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  block: string,
  from: string,
  pairs: boolean,
): void {
  const order = (n: number) => pairs ? { rowOrder: interleavedPairs(n, headDim) } : {};
  list.matrix(`${block}attn_q`, `${from}q_proj`, heads * headDim, hidden, order(heads));
  list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden, order(kvHeads));
  list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
}

/** Mixers by their older and newer names in transformers. */
const LAYER_TYPES: Readonly<Record<string, Mixer>> = {
  mamba: "mamba",
  linear_attention: "mamba",
  attention: "attention",
  full_attention: "attention",
};

function readLayerTypes(config: Fields, layers: number): Mixer[] {
  const types = config.get("layer_types") ?? config.get("layers_block_type");
  const known = (type: unknown) => typeof type === "string" && Object.hasOwn(LAYER_TYPES, type);
  if (Array.isArray(types) && types.length === layers && types.every(known)) {
    return types.map((type) => LAYER_TYPES[type]);
  }
  const allowed = `${layers} of "mamba" or "linear_attention" and "attention" or "full_attention"`;
  return config.refuse("layer_types", "another list", allowed);
}

/** Returns the keys that both hybrids share, with arrays for values that differ between layers. */
export function hybridEntries(
  architecture: string,
  decoder: DecoderConfig,
  mamba: MambaConfig,
  mixers: readonly Mixer[],
): Entry[] {
  const key = (name: string) => `${architecture}.${name}`;
  const lists = [key("attention.head_count_kv"), key("feed_forward_length")];
  const kvHeads = mixers.map((mixer) => mixer === "attention" ? decoder.kvHeads : 0);
  return [
    ...decoderEntries(architecture, decoder).filter(({ key }) => !lists.includes(key)),
    entry(lists[0], "UINT32", kvHeads),
    ...mambaEntries(architecture, mamba),
  ];
}

export function mambaEntries(
  architecture: string,
  { heads, headDim, groups, stateSize, taps }: MambaConfig,
): Entry[] {
  const counts = {
    conv_kernel: taps,
    state_size: stateSize,
    group_count: groups,
    time_step_rank: heads,
    inner_size: heads * headDim,
  };
  return Object.entries(counts).map(([name, n]) => entry(`${architecture}.ssm.${name}`, "UINT32", n));
}
