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

/** Experts weighed by the softmax over the chosen, and beside them one that all rows go through. */
export const HUNYUAN_MOE: Family<
  DecoderShape & { readonly experts: ExpertsShape; readonly sharedWidth: number }
> = {
  tiny: {
    ...TINY,
    // llama.cpp takes the experts' width from here.
    feedForward: 256,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    headNorms: true,
    experts: { count: 12, used: 3, feedForward: 256 },
    sharedWidth: 512,
  },
  real: {
    "hunyuan-a13b": {
      embedding: 4096,
      feedForward: 3072,
      layers: 32,
      vocabulary: 128_167,
      context: 262_144,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 1.1158840e7,
      headNorms: true,
      experts: { count: 64, used: 8, feedForward: 3072 },
      sharedWidth: 3072,
    },
  },
  write(file, shape) {
    const { embedding, experts, sharedWidth } = shape;
    writeCounts(file, shape, {
      ...expertCounts(experts),
      expert_shared_count: 1,
      expert_shared_feed_forward_length: sharedWidth,
    });
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      writeExperts(file, block, embedding, experts);
      writeSharedExpert(file, block, embedding, sharedWidth);
    }
  },
};

/**
 * Experts behind the first layers, weighed by the softmax over all, and beside them some that all rows go through. llama.cpp has no other
 * heads than those that are as wide as the embedding.
 */
export const DEEPSEEK: Family<
  DecoderShape & {
    readonly experts: ExpertsShape & { readonly shared: number; readonly scale: number };
    readonly leadingDense: number;
  }
> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 4,
    headDim: 32,
    ropeBase: 1e4,
    untied: true,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, scale: 1.5 },
    leadingDense: 1,
  },
  real: {
    "deepseek-moe-16b": {
      embedding: 2048,
      feedForward: 10_944,
      layers: 28,
      vocabulary: 102_400,
      context: 4096,
      heads: 16,
      kvHeads: 16,
      headDim: 128,
      ropeBase: 1e4,
      untied: true,
      experts: { count: 64, used: 6, feedForward: 1408, shared: 2, scale: 1 },
      leadingDense: 1,
    },
  },
  write(file, shape) {
    const { embedding, experts, leadingDense } = shape;
    writeCounts(file, shape, {
      ...expertCounts(experts),
      expert_shared_count: experts.shared,
      leading_dense_block_count: leadingDense,
    });
    file.key("expert_weights_scale", "FLOAT32", experts.scale);
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      if (layer < leadingDense) {
        writeFeedForward(file, block, shape);
        continue;
      }
      writeExperts(file, block, embedding, experts);
      writeSharedExpert(file, block, embedding, experts.shared * experts.feedForward);
    }
  },
};
