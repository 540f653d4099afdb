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
 * Experts weighed by the softmax over all, and beside them one that all rows go through, behind a gate. llama.cpp has no other heads than those
 * that are as wide as the embedding.
 */
export const QWEN2MOE: Family<
  DecoderShape & { readonly experts: ExpertsShape; readonly sharedWidth: number }
> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 4,
    headDim: 32,
    ropeBase: 1e6,
    untied: true,
    biases: true,
    experts: { count: 12, used: 3, feedForward: 256 },
    sharedWidth: 512,
  },
  real: {
    "qwen1.5-moe-a2.7b": {
      embedding: 2048,
      feedForward: 5632,
      layers: 24,
      vocabulary: 151_936,
      context: 8192,
      heads: 16,
      kvHeads: 16,
      headDim: 128,
      ropeBase: 1e6,
      untied: true,
      biases: true,
      experts: { count: 60, used: 4, feedForward: 1408 },
      sharedWidth: 5632,
    },
    "qwen2-57b-a14b": {
      embedding: 3584,
      feedForward: 18_944,
      layers: 28,
      vocabulary: 151_936,
      context: 32_768,
      heads: 28,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 1e6,
      untied: true,
      biases: true,
      experts: { count: 64, used: 8, feedForward: 2560 },
      sharedWidth: 20_480,
    },
  },
  write(file, shape) {
    const { embedding, experts, sharedWidth } = shape;
    writeCounts(file, shape, {
      ...expertCounts(experts),
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
      const gate = `${block}.ffn_gate_inp_shexp.weight`;
      file.floats(gate, [embedding, 1], (random) => 0.1 * random.normal());
    }
  },
};

interface DeepseekShape extends DecoderShape {
  readonly experts: ExpertsShape & {
    readonly shared: number;
    readonly scale: number;
    /** Weights are divided by their sum. */
    readonly divided?: boolean;
  };
  readonly leadingDense: number;
}

/**
 * Experts behind the first layers, weighed by the softmax over all, and beside them some that all rows go through. llama.cpp has no other
 * heads than those that are as wide as the embedding.
 */
export const DEEPSEEK: Family<DeepseekShape> = {
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
  write: writeDeepseek,
};

/** Ling Lite: such experts in every layer, whose weights are divided by their sum. */
export const BAILINGMOE: Family<DeepseekShape> = {
  tiny: {
    ...DEEPSEEK.tiny,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 6e5,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, scale: 1, divided: true },
    leadingDense: 0,
  },
  real: {
    "ling-lite": {
      embedding: 2048,
      feedForward: 5632,
      layers: 28,
      vocabulary: 126_464,
      context: 16_384,
      heads: 16,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 6e5,
      untied: true,
      experts: { count: 64, used: 6, feedForward: 1408, shared: 2, scale: 1, divided: true },
      leadingDense: 0,
    },
  },
  write: writeDeepseek,
};

function writeDeepseek(file: SynthFile, shape: DeepseekShape): void {
  const { embedding, experts, leadingDense } = shape;
  writeCounts(file, shape, {
    ...expertCounts(experts),
    expert_shared_count: experts.shared,
    leading_dense_block_count: leadingDense,
  });
  file.key("expert_weights_scale", "FLOAT32", experts.scale);
  if (experts.divided) file.key("expert_weights_norm", "BOOL", true);
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
}
