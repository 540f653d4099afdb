import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeFeedForward,
  writeReals,
  writeSharedExpert,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { writeNextToken } from "./qwen35.ts";

/** Experts behind the first layers, weighed by sigmoids, and beside them some that all rows go through. */
interface SigmoidExpertsShape extends DecoderShape {
  readonly experts: ExpertsShape & { readonly shared: number; readonly scale: number };
  readonly leadingDense: number;
  /** Layers behind the others that draft tokens; by default none. */
  readonly drafts?: number;
}

/** The 355B's kind of heads, which are normed. */
export const GLM4MOE: Family<SigmoidExpertsShape> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    rotated: 32,
    ropeBase: 1e6,
    untied: true,
    biases: true,
    headNorms: true,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, scale: 2.5 },
    leadingDense: 1,
  },
  real: {
    "glm-4.5-air": {
      embedding: 4096,
      feedForward: 10_944,
      layers: 46,
      vocabulary: 151_552,
      context: 131_072,
      heads: 96,
      kvHeads: 8,
      headDim: 128,
      rotated: 64,
      ropeBase: 1e6,
      untied: true,
      biases: true,
      experts: { count: 128, used: 8, feedForward: 1408, shared: 1, scale: 1 },
      leadingDense: 1,
      drafts: 1,
    },
  },
  write: (file, shape) => writeCounted(file, shape, "post_attention_norm"),
};

/** MiniMax M2: experts in every layer and none beside them, and norms of all query heads and of all key heads. */
export const MINIMAX_M2: Family<DecoderShape & { readonly experts: ExpertsShape }> = {
  tiny: {
    ...TINY,
    // llama.cpp takes the experts' width from here.
    feedForward: 256,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    rotated: 32,
    ropeBase: 5e6,
    untied: true,
    experts: { count: 12, used: 3, feedForward: 256 },
  },
  real: {
    "minimax-m2": {
      embedding: 3072,
      feedForward: 1536,
      layers: 62,
      vocabulary: 200_064,
      context: 196_608,
      heads: 48,
      kvHeads: 8,
      headDim: 128,
      rotated: 64,
      ropeBase: 5e6,
      untied: true,
      experts: { count: 256, used: 8, feedForward: 1536 },
    },
  },
  write(file, shape) {
    const { embedding, experts, heads, kvHeads, headDim } = shape;
    writeCounts(file, shape, { ...expertCounts(experts), expert_gating_func: 2 });
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.vector(`${block}.attn_q_norm.weight`, heads * headDim);
      file.vector(`${block}.attn_k_norm.weight`, kvHeads * headDim);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      writeExperts(file, block, embedding, experts);
      file.vector(`${block}.exp_probs_b.bias`, experts.count, 0, BIAS.alone);
    }
  },
};

/** Ling 2.0: q, k and v are one tensor, and experts are chosen out of groups. */
export const BAILINGMOE2: Family<
  SigmoidExpertsShape & {
    readonly groups: { readonly count: number; readonly used: number };
    /** Of the shared expert. */
    readonly sharedWidth: number;
  }
> = {
  tiny: {
    ...TINY,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    rotated: 32,
    ropeBase: 6e5,
    untied: true,
    headNorms: true,
    experts: { count: 16, used: 5, feedForward: 256, shared: 1, scale: 2.5 },
    sharedWidth: 512,
    groups: { count: 4, used: 3 },
    leadingDense: 1,
  },
  real: {
    "ling-mini-2.0": {
      embedding: 2048,
      feedForward: 5120,
      layers: 20,
      vocabulary: 157_184,
      context: 32_768,
      heads: 16,
      kvHeads: 4,
      headDim: 128,
      rotated: 64,
      ropeBase: 6e5,
      untied: true,
      headNorms: true,
      experts: { count: 256, used: 8, feedForward: 512, shared: 1, scale: 2.5 },
      sharedWidth: 512,
      groups: { count: 8, used: 4 },
      leadingDense: 1,
    },
  },
  write(file, shape) {
    const { embedding, heads, kvHeads, headDim, groups, sharedWidth } = shape;
    writeKeys(file, shape, {
      expert_shared_feed_forward_length: sharedWidth,
      expert_group_count: groups.count,
      expert_group_used_count: groups.used,
    });
    for (let layer = 0; layer < shape.layers + (shape.drafts ?? 0); layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      file.matrix(`${block}.attn_qkv`, embedding, (heads + 2 * kvHeads) * headDim);
      file.matrix(`${block}.attn_output`, heads * headDim, embedding);
      for (const norm of ["attn_q_norm", "attn_k_norm"]) file.vector(`${block}.${norm}.weight`, headDim);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      writeHalf(file, layer, shape, sharedWidth, BIAS.large);
      if (layer < shape.layers) continue;
      writeNextToken(file, block, embedding);
      file.vector(`${block}.layer_output_norm.weight`, embedding);
    }
  },
};

/** Llama's layers with such experts, of which the shared ones are as wide as the others. */
function writeCounted(file: SynthFile, shape: SigmoidExpertsShape, feedForwardNorm: string): void {
  const { embedding } = shape;
  writeKeys(file, shape, {});
  for (let layer = 0; layer < shape.layers + (shape.drafts ?? 0); layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    writeAttention(file, block, shape);
    file.vector(`${block}.${feedForwardNorm}.weight`, embedding);
    writeHalf(file, layer, shape, shape.experts.feedForward);
    if (layer >= shape.layers) writeNextToken(file, block, embedding);
  }
}

/** Mean and spread of Trinity's norms behind halves of layers, which begin their training at one over the root of the layers. */
const POST_NORM = [0.15, 0.03] as const;

/** Arcee's Trinity: attention has gates, and a window but for every fourth layer's. */
export const AFMOE: Family<SigmoidExpertsShape & { readonly window: number }> = {
  tiny: {
    ...TINY,
    layers: 5,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e4,
    untied: true,
    headNorms: true,
    window: 40,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, scale: 2.5 },
    leadingDense: 2,
  },
  real: {
    "trinity-nano": {
      embedding: 1024,
      feedForward: 3072,
      layers: 56,
      vocabulary: 200_192,
      context: 131_072,
      heads: 8,
      kvHeads: 2,
      headDim: 128,
      ropeBase: 1e4,
      untied: true,
      headNorms: true,
      window: 2048,
      experts: { count: 128, used: 8, feedForward: 256, shared: 1, scale: 2.826 },
      leadingDense: 2,
    },
    "trinity-mini": {
      embedding: 2048,
      feedForward: 6144,
      layers: 32,
      vocabulary: 200_192,
      context: 131_072,
      heads: 32,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 1e4,
      untied: true,
      headNorms: true,
      window: 2048,
      experts: { count: 128, used: 8, feedForward: 1024, shared: 1, scale: 2.826 },
      leadingDense: 2,
    },
  },
  write(file, shape) {
    const { embedding, heads, headDim } = shape;
    writeKeys(file, shape, { "attention.sliding_window": shape.window });
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.matrix(`${block}.attn_gate`, embedding, heads * headDim);
      file.vector(`${block}.post_attention_norm.weight`, embedding, ...POST_NORM);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      writeHalf(file, layer, shape, shape.experts.feedForward, BIAS.large);
      file.vector(`${block}.post_ffw_norm.weight`, embedding, ...POST_NORM);
    }
  },
};

function writeKeys(
  file: SynthFile,
  shape: SigmoidExpertsShape,
  more: Readonly<Record<string, number>>,
): void {
  const { experts, layers, leadingDense, drafts = 0 } = shape;
  writeCounts(file, { ...shape, layers: layers + drafts }, {
    ...expertCounts(experts),
    expert_shared_count: experts.shared,
    expert_gating_func: 2,
    leading_dense_block_count: leadingDense,
    ...drafts > 0 && { nextn_predict_layers: drafts },
    ...more,
  });
  file.key("expert_weights_norm", "BOOL", true);
  file.key("expert_weights_scale", "FLOAT32", experts.scale);
  writeReals(file, shape);
  writeEnds(file, shape);
}

/**
 * A bias of the choice. Where experts are chosen out of groups it is as large as scores: sums of those that sigmoids bring near 1 would
 * be so alike that rounding often changes which groups are the best, and with a group all experts of a row. So it is before a norm, which
 * makes another expert count as much as all that the row has of the half.
 */
const BIAS = { alone: 0.1, large: 0.5 };

/** A layer's feed-forward half; each shared expert is `sharedWidth` wide. */
function writeHalf(
  file: SynthFile,
  layer: number,
  shape: SigmoidExpertsShape,
  sharedWidth: number,
  bias = BIAS.alone,
): void {
  const { embedding, experts, leadingDense } = shape;
  const block = `blk.${layer}`;
  if (layer < leadingDense) return writeFeedForward(file, block, shape);
  writeExperts(file, block, embedding, experts);
  file.vector(`${block}.exp_probs_b.bias`, experts.count, 0, bias);
  writeSharedExpert(file, block, embedding, experts.shared * sharedWidth);
}
