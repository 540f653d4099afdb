import { type Checkpoint, type DecoderConfig, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { DEEPSEEK2, DEEPSEEK32, GLM_DSA, MISTRAL4 } from "../../engine/architectures/decoders/deepseek2.ts";
import type { Family } from "../../engine/architectures/family.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import {
  convertSharedExperts,
  readSharedExperts,
  SIGMOID,
  SOFTMAX,
  withDenseCount,
} from "./sigmoid_experts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_RANK = 65_536;
const MAX_SHARED = 64;

/** Shape of latent attention. */
export interface LatentConfig {
  readonly rank: number;
  /** Rank of queries; 0 if they are computed directly from the rows. */
  readonly queryRank: number;
  /** Number of a query head's dimensions without positions, and with positions. */
  readonly plain: number;
  readonly rotated: number;
  readonly valueLength: number;
}

/** Converts DeepSeek V2 and V3, Kimi K2, and GLM-4.7 Flash. */
export function convertDeepseek2(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convertLatent(config, list, prefix, DEEPSEEK2);
}

/** Converts Mistral Small 4. Sources: Hugging Face transformers, models/mistral4; llama.cpp, conversion/mistral3.py. */
export function convertMistral4(config: Fields, list: TensorList, prefix: string): ModelParts {
  const rope = config.fields("rope_parameters");
  const latent = readLatent(config);
  const share = "partial_rotary_factor";
  const usual = latent.rotated / (latent.plain + latent.rotated);
  rope?.mustBe(share, usual, "qk_rope_head_dim of each head are rotated");
  const known = config.with({ rope_parameters: rope && { ...rope.object, [share]: 1 } })
    .withDefaults({ first_k_dense_replace: 0, n_shared_experts: 1 });
  const parts = convertLatent(known, list, prefix, MISTRAL4);
  const { fields } = parts.decoder.rope;
  const beta = "llama_4_scaling_beta";
  if (!fields.has(beta)) return parts;
  const scale = entry("mistral4.attention.temperature_scale", "FLOAT32", fields.positive(beta, LIMITS.scale));
  return { ...parts, entries: [...parts.entries, scale] };
}

/** Converts DeepSeek V3.2. */
export function convertDeepseek32(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convertSparse(config, list, prefix, DEEPSEEK32);
}

/** Converts GLM-5. Layers without an indexer use the tokens that an earlier layer's indexer chose. */
export function convertGlmDsa(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convertSparse(config, list, prefix, GLM_DSA);
}

/** Converts a decoder with sparse attention: an indexer chooses the tokens that each row attends to. */
function convertSparse(config: Fields, list: TensorList, prefix: string, family: Family): ModelParts {
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const kinds = config.get("layer_types") ?? [];
  if (!Array.isArray(kinds) || kinds.some((kind) => kind !== "indexed_attention")) {
    config.refuse("layer_types", inWords(kinds), `"indexed_attention" for each layer`);
  }
  const indexer = {
    heads: config.count("index_n_heads", LIMITS.heads),
    headDim: config.count("index_head_dim", LIMITS.headDim),
    full: family === GLM_DSA ? readIndexerTypes(config, layers) : undefined,
  };
  const known = config.has("mlp_layer_types") ? withDenseCount(config, layers) : config;
  const parts = convertLatent(known, list, prefix, family, indexer);
  const key = (name: string) => `${family.architecture}.attention.indexer.${name}`;
  return {
    ...parts,
    entries: [
      ...parts.entries,
      entry(key("head_count"), "UINT32", indexer.heads),
      entry(key("key_length"), "UINT32", indexer.headDim),
      entry(key("top_k"), "UINT32", config.count("index_topk", LIMITS.context)),
      ...indexer.full ? [entry(key("types"), "BOOL", indexer.full)] : [],
    ],
  };
}

/** Returns for each layer whether it has an indexer. config.json has a list, a pattern, or a period and an offset. */
function readIndexerTypes(config: Fields, layers: number): boolean[] {
  const pattern = config.get("index_topk_pattern");
  const types = config.get("indexer_types") ?? (typeof pattern === "string" ? [...pattern] : pattern);
  if (types === undefined || types === null) {
    const every = config.count("index_topk_freq", layers, 1);
    const offset = config.countFrom0("index_skip_topk_offset", layers, 2);
    return Array.from({ length: layers }, (_, layer) => Math.max(layer - offset + 1, 0) % every === 0);
  }
  const isFull = (type: unknown) => type === "full" || type === "F";
  const known = (type: unknown) => isFull(type) || type === "shared" || type === "S";
  if (Array.isArray(types) && types.length === layers && types.every(known)) return types.map(isFull);
  return config.refuse(
    "indexer_types",
    inWords(types),
    `"full" or "shared" for each of the ${layers} layers`,
  );
}

/** Shape of the indexer, whose heads choose tokens. */
interface IndexerConfig {
  readonly heads: number;
  readonly headDim: number;
  /** For each layer, whether it has an indexer. Undefined: all layers have one. */
  readonly full?: readonly boolean[];
}

function addIndexer(
  list: TensorList,
  { hidden }: DecoderConfig,
  { queryRank }: LatentConfig,
  { heads, headDim }: IndexerConfig,
  block: string,
  from: string,
): void {
  list.matrix(`${block}attn_q_b`, `${from}wq_b`, heads * headDim, queryRank);
  list.matrix(`${block}attn_k`, `${from}wk`, headDim, hidden);
  list.matrix(`${block}proj`, `${from}weights_proj`, heads, hidden);
  for (const part of ["weight", "bias"]) {
    list.vector(`${block}k_norm.${part}`, `${from}k_norm.${part}`, headDim);
  }
}

function convertLatent(
  config: Fields,
  list: TensorList,
  prefix: string,
  family: Family,
  indexer?: IndexerConfig,
): ModelParts {
  config.mustBe("rope_interleave", true, "readers turn the pairs (2i, 2i + 1)");
  config.mustBe("moe_layer_freq", 1, "all layers after the dense ones must have experts");
  const latent = readLatent(config);
  const experts = readSharedExperts(config, {
    count: "n_routed_experts",
    shared: "n_shared_experts",
    most: MAX_SHARED,
  });
  const gating = readGating(config);
  const checkpoint: Checkpoint = {
    pairsKept: true,
    keys: { headDim: "qk_rope_head_dim" },
    anyMultiplier: true,
  };
  const { architecture } = family;
  const parts = convertSharedExperts(
    config,
    list,
    prefix,
    family,
    checkpoint,
    {
      ...experts,
      gating,
      bias: gating === SIGMOID ? "gate.e_score_correction_bias" : undefined,
      sharedWidth: experts.shared * experts.feedForward,
    },
    latentEntries(architecture, latent, readGroups(config, gating)),
    ({ block, from }, decoder, layer) => {
      const attention = `${from}self_attn.`;
      addLatent(list, decoder, latent, block, attention);
      if (!indexer || indexer.full?.[layer] === false) return;
      addIndexer(list, decoder, latent, indexer, `${block}indexer.`, `${attention}indexer.`);
    },
  );
  return { ...parts, entries: withLatentHeads(architecture, parts.entries, latent) };
}

export function readLatent(config: Fields): LatentConfig {
  const count = (name: string) => config.count(name, MAX_RANK);
  return {
    rank: count("kv_lora_rank"),
    queryRank: config.has("q_lora_rank") && config.get("q_lora_rank") !== null ? count("q_lora_rank") : 0,
    plain: count("qk_nope_head_dim"),
    rotated: count("qk_rope_head_dim"),
    valueLength: count("v_head_dim"),
  };
}

/** Model types that weigh experts by the softmax unless config.json names another function. */
const SOFTMAXES: readonly unknown[] = ["deepseek_v2", "mistral4"];

/** Returns GGUF's code of the function that weighs the experts. */
function readGating(config: Fields): number {
  const usual = SOFTMAXES.includes(config.get("model_type")) ? "softmax" : "sigmoid";
  const scoring = config.string("scoring_func", usual);
  if (scoring === "softmax") return SOFTMAX;
  if (scoring === "sigmoid") return SIGMOID;
  return config.refuse("scoring_func", inWords(scoring), `"softmax" or "sigmoid"`);
}

/** Returns the groups of experts. V2 ranks groups by their best expert, which GGUF's readers do not support. */
function readGroups(config: Fields, gating: number): { readonly count: number; readonly used: number } {
  const count = config.count("n_group", LIMITS.heads, 1);
  if (count > 1 && gating === SOFTMAX) {
    config.refuse("n_group", String(count), "1, where the softmax weighs experts");
  }
  return { count, used: config.count("topk_group", count, count) };
}

export function addLatent(
  list: TensorList,
  decoder: DecoderConfig,
  latent: LatentConfig,
  block: string,
  from: string,
  output = "o_proj",
): void {
  const { hidden, heads } = decoder;
  const { rank, plain, valueLength } = latent;
  addLatentRows(list, decoder, latent, block, from);
  const each = plain + valueLength;
  const both = list.finder.stack(`${from}kv_b_proj.weight`, [heads * each, rank]);
  list.turned(`${block}attn_k_b`, both, { count: heads, rows: rank, columns: plain }, { each });
  list.lastRows(`${block}attn_v_b`, both, { count: heads, rows: valueLength, columns: rank }, each);
  list.matrix(`${block}attn_output`, from + output, hidden, heads * valueLength);
}

/** Adds the matrices that compute the queries and the latent row. */
export function addLatentRows(
  list: TensorList,
  { hidden, heads }: DecoderConfig,
  { rank, queryRank, plain, rotated }: LatentConfig,
  block: string,
  from: string,
): void {
  const queries = heads * (plain + rotated);
  if (queryRank === 0) list.matrix(`${block}attn_q`, `${from}q_proj`, queries, hidden);
  else {
    list.matrix(`${block}attn_q_a`, `${from}q_a_proj`, queryRank, hidden);
    list.vector(`${block}attn_q_a_norm.weight`, `${from}q_a_layernorm.weight`, queryRank);
    list.matrix(`${block}attn_q_b`, `${from}q_b_proj`, queries, queryRank);
  }
  list.matrix(`${block}attn_kv_a_mqa`, `${from}kv_a_proj_with_mqa`, rank + rotated, hidden);
  list.vector(`${block}attn_kv_a_norm.weight`, `${from}kv_a_layernorm.weight`, rank);
}

export function latentEntries(
  architecture: string,
  latent: LatentConfig,
  groups: { readonly count: number; readonly used: number },
): Entry[] {
  const counts = {
    "attention.key_length_mla": latent.plain + latent.rotated,
    "attention.value_length_mla": latent.valueLength,
    "attention.kv_lora_rank": latent.rank,
    ...latent.queryRank > 0 && { "attention.q_lora_rank": latent.queryRank },
    ...groups.count > 1 && { expert_group_count: groups.count, expert_group_used_count: groups.used },
  };
  return Object.entries(counts).map(([name, value]) => entry(`${architecture}.${name}`, "UINT32", value));
}

/**
 * Returns the keys of a decoder with one KV head, the token's latent row. The key of YaRN's multiplier holds a tenth of
 * it.
 */
export function withLatentHeads(
  architecture: string,
  entries: readonly Entry[],
  { rank, rotated }: LatentConfig,
): Entry[] {
  const values: Readonly<Record<string, ((value: number) => number) | undefined>> = {
    "attention.head_count_kv": () => 1,
    "attention.key_length": () => rank + rotated,
    "attention.value_length": () => rank,
    "rope.scaling.yarn_log_multiplier": (value) => 0.1 * value,
  };
  return entries.map((one) => {
    const change = values[one.key.slice(architecture.length + 1)];
    // Hybrids have a list of KV heads per layer, which stays unchanged.
    return change && typeof one.value === "number" ? { ...one, value: change(one.value) } : one;
  });
}
