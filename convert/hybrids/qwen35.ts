import { quote } from "../../engine/gguf/errors.ts";
import type { DecoderConfig } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { refuse } from "../errors.ts";
import {
  addGatedExperts,
  gatedExpertEntries,
  type GatedExpertsConfig,
  readExperts,
  readSharedLength,
} from "../mixtures/experts.ts";
import type { Fields } from "../checkpoint/json.ts";
import { addFeedForward } from "../decoder.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import { type Runs, tiledHeads } from "../order.ts";
import { readSections } from "../../engine/architectures/parts/rope_sections.ts";
import type { TensorList } from "../tensor_list.ts";

/** Defaults of Qwen3.5's configuration class. */
const PARTIAL_ROTARY = 0.25;
const FULL_ATTENTION_INTERVAL = 4;
const MAX_HEADS = 1024;
const MAX_HEAD_DIM = 4096;
const MAX_TAPS = 64;

/** Shape of the linear-attention layers. */
interface LinearConfig {
  readonly kHeads: number;
  readonly vHeads: number;
  readonly kDim: number;
  readonly vDim: number;
  readonly taps: number;
  /** Layers per period of attention. The last layer of a period has full attention. */
  readonly interval: number;
  /** Whether value heads keep the checkpoint's order, in which those of one key head are adjacent. */
  readonly inGroups: boolean;
}

/**
 * Converts Qwen3.5's text part. Hugging Face stores norm weights, except the gated norm's, as the distance from 1.
 * MLX's loader adds 1 and swaps the convolution's axes, so the axes show which form the norms have.
 */
export function convertQwen35(config: Fields, list: TensorList, prefix: string): ModelParts {
  if (config.has("num_experts")) {
    config.mustBe("num_experts", 0, "mixtures of experts are of the model type qwen3_5_moe");
  }
  return convert(config, list, prefix, { architecture: "qwen35" });
}

/** Converts Qwen3.5's mixtures of experts, which have a shared expert. */
export function convertQwen35Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const experts = { ...readExperts(config, true), shared: readSharedLength(config) };
  return convert(config, list, prefix, { architecture: "qwen35moe", experts });
}

/** Converts Qwen3-Next: Qwen3.5's mixture with another order of rows. Its drafting layer is left out. */
export function convertQwen3Next(config: Fields, list: TensorList, prefix: string): ModelParts {
  const experts = { ...readExperts(config), shared: readSharedLength(config) };
  return convert(config, list, prefix, { architecture: "qwen3next", experts });
}

interface Hybrid {
  readonly architecture: "qwen35" | "qwen35moe" | "qwen3next";
  readonly experts?: GatedExpertsConfig;
}

function convert(
  config: Fields,
  list: TensorList,
  prefix: string,
  { architecture, experts }: Hybrid,
): ModelParts {
  config.mustBe("attn_output_gate", true, "attention without an output gate is not computed");
  const keys = experts ? { feedForward: "moe_intermediate_size" } : {};
  const decoder = readDecoderConfig(config, { keys, partialRotary: PARTIAL_ROTARY, scalings: [] });
  const inGroups = architecture === "qwen3next";
  const linear = readLinear(config, decoder, inGroups);
  const norm = normsNeedOne(list, prefix, decoder, linear) ? (weight: number) => weight + 1 : undefined;
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const block = `blk.${i}.`;
    const layer = `${prefix}layers.${i}.`;
    const full = (i + 1) % linear.interval === 0;
    addLayer(list, { decoder, linear, experts, norm }, block, layer, full);
  }
  const drafts = inGroups ? undefined : DRAFTS.find((module) => list.finder.has(`${module}fc.weight`));
  if (drafts !== undefined) addDraftLayer(list, { decoder, linear, experts, norm }, drafts);
  const entries = [
    ...decoderEntries(architecture, { ...decoder, layers: decoder.layers + (drafts === undefined ? 0 : 1) }),
    ...drafts === undefined ? [] : [entry(`${architecture}.nextn_predict_layers`, "UINT32", 1)],
    ...linearEntries(architecture, linear),
    ...inGroups
      ? []
      : [entry(`${architecture}.rope.dimension_sections`, "INT32", readSections(decoder.rope))],
    ...experts ? gatedExpertEntries(architecture, experts) : [],
  ];
  return { decoder, entries, outputNorm: norm };
}

/** Parts of a layer. */
interface HybridParts {
  readonly decoder: DecoderConfig;
  readonly linear: LinearConfig;
  readonly experts?: GatedExpertsConfig;
  /** Function to apply to norm weights. */
  readonly norm?: (weight: number) => number;
}

/** Adds a layer of full or linear attention to the list, with its feed-forward block. */
function addLayer(
  list: TensorList,
  { decoder, linear, experts, norm }: HybridParts,
  block: string,
  layer: string,
  full: boolean,
): void {
  const { hidden } = decoder;
  list.vector(`${block}attn_norm.weight`, `${layer}input_layernorm.weight`, hidden, { map: norm });
  if (full) addFull(list, decoder, block, `${layer}self_attn.`, norm);
  else addLinear(list, hidden, linear, block, `${layer}linear_attn.`);
  const after = `${layer}post_attention_layernorm.weight`;
  list.vector(`${block}post_attention_norm.weight`, after, hidden, { map: norm });
  if (experts) addGatedExperts(list, decoder, experts, block, `${layer}mlp.`);
  else addFeedForward(list, decoder, { block, from: layer });
}

/** Prefixes of the drafting layer's names in Hugging Face's and in MLX's checkpoints. */
const DRAFTS = ["mtp.", "language_model.mtp."];

/**
 * Adds the first drafting layer to the list. Its projection reads the token's row, then the row before it, as in GGUF.
 */
function addDraftLayer(list: TensorList, parts: HybridParts, from: string): void {
  const { decoder: { layers, hidden, vocabulary }, norm } = parts;
  const block = `blk.${layers}.`;
  addLayer(list, parts, block, `${from}layers.0.`, true);
  list.matrix(`${block}nextn.eh_proj`, `${from}fc`, hidden, 2 * hidden);
  for (const [name, module] of DRAFT_NORMS) {
    list.vector(`${block}nextn.${name}.weight`, `${from}${module}.weight`, hidden, { map: norm });
  }
  if (list.finder.has(`${from}embed_tokens.weight`)) {
    list.matrix(`${block}nextn.embed_tokens`, `${from}embed_tokens`, vocabulary, hidden);
  }
}

const DRAFT_NORMS = [
  ["enorm", "pre_fc_norm_embedding"],
  ["hnorm", "pre_fc_norm_hidden"],
  ["shared_head_norm", "norm"],
] as const;

function addFull(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  block: string,
  from: string,
  map: ((weight: number) => number) | undefined,
): void {
  // Each head's query comes before its gate, as in GGUF.
  list.matrix(`${block}attn_q`, `${from}q_proj`, 2 * heads * headDim, hidden);
  list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
  list.matrix(`${block}attn_output`, `${from}o_proj`, hidden, heads * headDim);
  list.vector(`${block}attn_q_norm.weight`, `${from}q_norm.weight`, headDim, { map });
  list.vector(`${block}attn_k_norm.weight`, `${from}k_norm.weight`, headDim, { map });
}

function addLinear(
  list: TensorList,
  hidden: number,
  linear: LinearConfig,
  block: string,
  from: string,
): void {
  const { kHeads, vHeads, kDim, vDim, taps, inGroups } = linear;
  const keys = 2 * kHeads * kDim; // rows of queries and keys
  const inner = vHeads * vDim;
  const order: HeadOrder = (size, first) =>
    inGroups ? undefined : tiledHeads(kHeads, vHeads / kHeads, size, first);
  if (inGroups) addGroupedRows(list, hidden, linear, block, from);
  else addTiledRows(list, hidden, linear, block, from, order);
  list.floats(`${block}ssm_conv1d.weight`, `${from}conv1d.weight`, keys + inner, taps, order(vDim, keys));
  list.vector(`${block}ssm_dt.bias`, `${from}dt_bias`, vHeads, { order: order(1) });
  list.vector(`${block}ssm_a`, `${from}A_log`, vHeads, { map: (log) => -Math.exp(log), order: order(1) });
  list.vector(`${block}ssm_norm.weight`, `${from}norm.weight`, vDim);
  list.matrix(`${block}ssm_out`, `${from}out_proj`, hidden, inner, { columnOrder: order(vDim) });
}

/**
 * Returns the rows of value heads of `size` elements in GGUF's order, after `first` other rows; undefined if unchanged.
 */
type HeadOrder = (size: number, first?: number) => Runs | undefined;

function addTiledRows(
  list: TensorList,
  hidden: number,
  { kHeads, vHeads, kDim, vDim }: LinearConfig,
  block: string,
  from: string,
  order: HeadOrder,
): void {
  const keys = 2 * kHeads * kDim;
  const inner = vHeads * vDim;
  list.matrix(`${block}attn_qkv`, `${from}in_proj_qkv`, keys + inner, hidden, {
    rowOrder: order(vDim, keys),
  });
  list.matrix(`${block}attn_gate`, `${from}in_proj_z`, inner, hidden, { rowOrder: order(vDim) });
  list.matrix(`${block}ssm_alpha`, `${from}in_proj_a`, vHeads, hidden, { rowOrder: order(1) });
  list.matrix(`${block}ssm_beta`, `${from}in_proj_b`, vHeads, hidden, { rowOrder: order(1) });
}

/**
 * Lists the matrices made of one matrix, where each key head's query, key, values and gates follow each other. Betas
 * and alphas keep that order.
 */
function addGroupedRows(
  list: TensorList,
  hidden: number,
  { kHeads, vHeads, kDim, vDim }: LinearConfig,
  block: string,
  from: string,
): void {
  const group = vHeads / kHeads * vDim; // rows of a K head's values
  const rows = 2 * (kDim + group);
  const of = kHeads * rows;
  const every = (first: number, size: number): Runs =>
    Array.from({ length: kHeads }, (_, head) => [head * rows + first, size]);
  const qkv = [...every(0, kDim), ...every(kDim, kDim), ...every(2 * kDim, group)];
  const both = `${from}in_proj_qkvz`;
  list.matrix(`${block}attn_qkv`, both, of - vHeads * vDim, hidden, { of, rowOrder: qkv });
  list.matrix(`${block}attn_gate`, both, vHeads * vDim, hidden, {
    of,
    rowOrder: every(2 * kDim + group, group),
  });
  list.matrix(`${block}ssm_ba`, `${from}in_proj_ba`, 2 * vHeads, hidden);
}

/**
 * Returns whether conversion must add 1 to the norms. Throws ConvertError where the convolutions' axes differ between
 * layers.
 */
function normsNeedOne(
  list: TensorList,
  prefix: string,
  decoder: DecoderConfig,
  linear: LinearConfig,
): boolean {
  let raw: boolean | undefined;
  for (let i = 0; i < decoder.layers; i++) {
    if ((i + 1) % linear.interval === 0) continue;
    const channels = 2 * linear.kHeads * linear.kDim + linear.vHeads * linear.vDim;
    const name = `${prefix}layers.${i}.linear_attn.conv1d.weight`;
    const { file, shape } = list.finder.floats(name, [channels, linear.taps]);
    const thisRaw = shape.length === 3 && shape[1] === 1;
    if (!thisRaw && !(shape.length === 3 && shape[2] === 1)) {
      const [c, t] = [channels, linear.taps];
      const allowed = `${c} x 1 x ${t} (Hugging Face) or ${c} x ${t} x 1 (MLX)`;
      refuse(file, `tensor ${quote(name)}`, `must have shape ${allowed} (got ${shape.join(" x ")})`);
    }
    if (raw !== undefined && raw !== thisRaw) {
      const detail =
        "its axes are in another order than in the layers before it: it is unclear whether 1 was added to " +
        "the norms";
      refuse(file, `tensor ${quote(name)}`, detail);
    }
    raw = thisRaw;
  }
  if (raw === undefined) {
    const detail = "there is no layer with linear attention: it is unclear whether 1 was added to the norms";
    refuse(list.finder.folder, undefined, detail);
  }
  return raw;
}

function readLinear(config: Fields, { layers }: DecoderConfig, inGroups: boolean): LinearConfig {
  const kHeads = config.count("linear_num_key_heads", MAX_HEADS);
  const vHeads = config.count("linear_num_value_heads", MAX_HEADS);
  if (vHeads % kHeads !== 0) {
    config.refuse("linear_num_value_heads", String(vHeads), `a multiple of the ${kHeads} key heads`);
  }
  const kDim = config.count("linear_key_head_dim", MAX_HEAD_DIM);
  const vDim = config.count("linear_value_head_dim", MAX_HEAD_DIM);
  // GGUF has only one key for both sizes.
  if (kDim !== vDim) {
    config.refuse("linear_value_head_dim", String(vDim), `${kDim}, as linear_key_head_dim is`);
  }
  const taps = config.count("linear_conv_kernel_dim", MAX_TAPS);
  if (taps < 2) config.refuse("linear_conv_kernel_dim", String(taps), `2 to ${MAX_TAPS}`);
  const interval = config.count("full_attention_interval", layers, Math.min(FULL_ATTENTION_INTERVAL, layers));
  checkLayerTypes(config, layers, interval);
  return { kHeads, vHeads, kDim, vDim, taps, interval, inGroups };
}

/** Throws ConvertError for layer types that contradict the interval. */
function checkLayerTypes(config: Fields, layers: number, interval: number): void {
  const types = config.get("layer_types");
  if (types === undefined) return;
  const expected = Array.from(
    { length: layers },
    (_, i) => (i + 1) % interval === 0 ? "full_attention" : "linear_attention",
  );
  const wrong = expected.findIndex((type, i) => !Array.isArray(types) || types[i] !== type);
  if (wrong >= 0 || (types as unknown[]).length !== layers) {
    const allowed = `full_attention in the last of every ${interval} layers, linear_attention in the others`;
    config.refuse("layer_types", `another order (layer ${Math.max(wrong, 0)})`, allowed);
  }
}

function linearEntries(
  architecture: string,
  { kHeads, vHeads, vDim, taps, interval }: LinearConfig,
): Entry[] {
  const key = (name: string) => `${architecture}.${name}`;
  return [
    entry(key("ssm.conv_kernel"), "UINT32", taps),
    entry(key("ssm.state_size"), "UINT32", vDim),
    entry(key("ssm.group_count"), "UINT32", kHeads),
    entry(key("ssm.time_step_rank"), "UINT32", vHeads),
    entry(key("ssm.inner_size"), "UINT32", vHeads * vDim),
    entry(key("full_attention_interval"), "UINT32", interval),
  ];
}
