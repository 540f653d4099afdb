import {
  expertCounts,
  type ExpertsShape,
  writeEnds,
  writeExperts,
  writeFeedForward,
  writeReals,
  writeSharedExpert,
} from "../decoder.ts";
import { type Dimensions, type SynthModel, TINY } from "../model.ts";
import type { SynthFile } from "../file.ts";
import { writeNextToken } from "../qwen35.ts";

/** Sizes of latent attention. */
export interface LatentDimensions {
  readonly heads: number;
  /**
   * Ranks of the latent rows for keys and values, and for queries. By default queries are computed from the input rows.
   */
  readonly rank: number;
  readonly queryRank?: number;
  /** Dimensions of a query head without positions, and with positions. */
  readonly plain: number;
  readonly rotated: number;
  readonly valueLength: number;
}

export interface LatentShape extends Dimensions, LatentDimensions {
  readonly ropeBase: number;
  /** YaRN's factor, and a tenth of its log multiplier, by default DeepSeek V2 Lite's. */
  readonly factor?: number;
  readonly multiplier?: number;
  /** Growth of queries beyond the original context. */
  readonly beta?: number;
  readonly untied?: boolean;
  readonly experts: ExpertsShape & { readonly shared: number; readonly scale: number };
  /** Whether experts are weighted by sigmoids with a bias, divided by their sum; otherwise by the softmax over all. */
  readonly sigmoid?: boolean;
  /** Standard deviation of the bias on the choice of sigmoid-weighted experts. */
  readonly choiceBias?: number;
  /** Whether weights are divided by their sum; by default true for sigmoids. */
  readonly divided?: boolean;
  readonly leadingDense: number;
  /** Extra layers that draft tokens. */
  readonly drafts?: number;
}

const LATENT_TINY = {
  ...TINY,
  rank: 256,
  plain: 256,
  rotated: 32,
  valueLength: 128,
  untied: true,
  leadingDense: 1,
};

/** Model like DeepSeek V3 and GLM-4.7 Flash. */
export const DEEPSEEK2: SynthModel<LatentShape> = {
  tiny: {
    ...LATENT_TINY,
    heads: 8,
    queryRank: 512,
    ropeBase: 1e6,
    experts: { count: 12, used: 3, feedForward: 256, shared: 1, scale: 1.8 },
    sigmoid: true,
  },
  real: {
    "glm-4.7-flash": {
      embedding: 2048,
      feedForward: 10_240,
      layers: 47,
      vocabulary: 154_880,
      context: 202_752,
      heads: 20,
      rank: 512,
      queryRank: 768,
      plain: 192,
      rotated: 64,
      valueLength: 256,
      ropeBase: 1e6,
      untied: true,
      experts: { count: 64, used: 4, feedForward: 1536, shared: 1, scale: 1.8 },
      sigmoid: true,
      leadingDense: 1,
    },
  },
  write,
};

/** Model like DeepSeek V2 Lite: YaRN, queries without a latent row, and softmax weights that are not divided. */
export const DEEPSEEK2_LITE: SynthModel<LatentShape> = {
  architecture: "deepseek2",
  tiny: {
    ...LATENT_TINY,
    heads: 6,
    ropeBase: 1e4,
    factor: 40,
    experts: { count: 12, used: 4, feedForward: 256, shared: 2, scale: 1 },
  },
  real: {
    "deepseek-v2-lite": {
      embedding: 2048,
      feedForward: 10_944,
      layers: 27,
      vocabulary: 102_400,
      context: 163_840,
      heads: 16,
      rank: 512,
      plain: 128,
      rotated: 64,
      valueLength: 128,
      ropeBase: 1e4,
      factor: 40,
      untied: true,
      experts: { count: 64, used: 6, feedForward: 1408, shared: 2, scale: 1 },
      leadingDense: 1,
    },
  },
  write,
};

/** Model like Mistral Small 4: experts in all layers, and queries that grow with their position. */
export const MISTRAL4: SynthModel<LatentShape> = {
  tiny: {
    ...LATENT_TINY,
    heads: 8,
    queryRank: 512,
    ropeBase: 1e4,
    factor: 40,
    multiplier: 0.1,
    beta: 0.1,
    // Without a bias two of many experts are easily so close that rounding chooses.
    experts: { count: 8, used: 2, feedForward: 256, shared: 1, scale: 1 },
    divided: true,
    leadingDense: 0,
  },
  real: {
    "mistral-small-4": {
      embedding: 4096,
      feedForward: 12_288,
      layers: 36,
      vocabulary: 131_072,
      context: 1_048_576,
      heads: 32,
      rank: 256,
      queryRank: 1024,
      plain: 64,
      rotated: 64,
      valueLength: 128,
      ropeBase: 1e4,
      factor: 128,
      multiplier: 0.1,
      beta: 0.1,
      untied: true,
      experts: { count: 128, used: 4, feedForward: 2048, shared: 1, scale: 1 },
      divided: true,
      leadingDense: 0,
    },
  },
  write,
};

/** Changes of a family to the keys of the file and to its attention. */
export interface LatentParts {
  readonly keys?: (file: SynthFile) => void;
  /** Writes a layer's attention; by default latent attention. */
  readonly attention?: (file: SynthFile, block: string, layer: number) => void;
  /** KV heads of each layer; by default 1. */
  readonly kvHeads?: readonly number[];
}

function write(file: SynthFile, shape: LatentShape): void {
  writeLatent(file, shape, {});
}

export function writeLatent(
  file: SynthFile,
  shape: LatentShape,
  { keys, attention, kvHeads }: LatentParts,
): void {
  const { embedding, experts, leadingDense, drafts = 0 } = shape;
  const layers = shape.layers + drafts;
  writeKeys(file, shape, kvHeads);
  keys?.(file);
  writeReals(file, shape);
  writeEnds(file, shape);
  for (let layer = 0; layer < layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    if (attention) attention(file, block, layer);
    else writeLatentAttention(file, block, shape);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    if (layer < leadingDense) {
      writeFeedForward(file, block, shape);
      continue;
    }
    writeExperts(file, block, embedding, experts);
    if (shape.sigmoid) file.vector(`${block}.exp_probs_b.bias`, experts.count, 0, shape.choiceBias);
    writeSharedExpert(file, block, embedding, experts.shared * experts.feedForward);
    if (layer >= shape.layers) writeNextToken(file, block, embedding);
  }
}

function writeKeys(file: SynthFile, shape: LatentShape, kvHeads?: readonly number[]): void {
  const { rank, rotated, experts, queryRank = 0, factor, multiplier = 0.0707, beta, drafts = 0 } = shape;
  file.counts({
    block_count: shape.layers + drafts,
    context_length: shape.context,
    embedding_length: shape.embedding,
    feed_forward_length: shape.feedForward,
    vocab_size: shape.vocabulary,
    "attention.head_count": shape.heads,
    ...!kvHeads && { "attention.head_count_kv": 1 },
    "attention.key_length": rank + rotated,
    "attention.value_length": rank,
    "attention.key_length_mla": shape.plain + rotated,
    "attention.value_length_mla": shape.valueLength,
    "attention.kv_lora_rank": rank,
    // llama.cpp requires this key unless the model has V2 Lite's number of layers.
    "attention.q_lora_rank": queryRank,
    "rope.dimension_count": rotated,
    ...expertCounts(experts),
    expert_shared_count: experts.shared,
    expert_gating_func: shape.sigmoid ? 2 : 1,
    leading_dense_block_count: shape.leadingDense,
    ...drafts > 0 && { nextn_predict_layers: drafts },
  });
  if (kvHeads) file.keys("attention.head_count_kv", "INT32", kvHeads);
  file.key("expert_weights_norm", "BOOL", shape.divided ?? shape.sigmoid ?? false);
  file.key("expert_weights_scale", "FLOAT32", experts.scale);
  if (factor === undefined) return;
  file.key("rope.scaling.type", "STRING", "yarn");
  file.key("rope.scaling.factor", "FLOAT32", factor);
  const original = Math.floor(shape.context / factor);
  file.key("rope.scaling.original_context_length", "UINT32", original);
  file.key("rope.scaling.yarn_log_multiplier", "FLOAT32", multiplier);
  if (beta === undefined) return;
  file.key("attention.temperature_scale", "FLOAT32", beta);
  file.key("attention.temperature_length", "UINT32", original);
}

export function writeLatentAttention(file: SynthFile, block: string, shape: LatentShape): void {
  const { embedding, heads, rank, plain, valueLength } = shape;
  writeLatentRows(file, block, shape);
  file.matrix(`${block}.attn_k_b`, plain, rank, heads);
  file.matrix(`${block}.attn_v_b`, rank, valueLength, heads);
  file.matrix(`${block}.attn_output`, heads * valueLength, embedding);
}

/**
 * Writes the matrices that compute the queries and the latent row. With larger weights of the queries' norm, scores
 * differ more.
 */
export function writeLatentRows(
  file: SynthFile,
  block: string,
  { embedding, heads, rank, queryRank, plain, rotated }: LatentDimensions & Pick<Dimensions, "embedding">,
  queryNorm = 1,
): void {
  const queries = heads * (plain + rotated);
  if (queryRank) {
    file.matrix(`${block}.attn_q_a`, embedding, queryRank);
    file.vector(`${block}.attn_q_a_norm.weight`, queryRank, queryNorm);
    file.matrix(`${block}.attn_q_b`, queryRank, queries);
  } else {
    file.matrix(`${block}.attn_q`, embedding, queries);
  }
  file.matrix(`${block}.attn_kv_a_mqa`, embedding, rank + rotated);
  file.vector(`${block}.attn_kv_a_norm.weight`, rank);
}
