import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeReals,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";

/** Experts are as wide as the feed-forward's key says. llama.cpp has no other heads than those that are as wide as the embedding. */
export const OLMOE: Family<DecoderShape & { readonly experts: ExpertsShape }> = {
  tiny: {
    ...TINY,
    feedForward: 256,
    heads: 8,
    kvHeads: 8,
    headDim: 32,
    ropeBase: 1e4,
    untied: true,
    experts: { count: 12, used: 3, feedForward: 256 },
  },
  real: {
    "olmoe-1b-7b": {
      embedding: 2048,
      feedForward: 1024,
      layers: 16,
      vocabulary: 50_304,
      context: 4096,
      heads: 16,
      kvHeads: 16,
      headDim: 128,
      ropeBase: 1e4,
      untied: true,
      experts: { count: 64, used: 8, feedForward: 1024 },
    },
  },
  write(file, shape) {
    const { embedding, experts, heads, kvHeads, headDim } = shape;
    const { expert_count, expert_used_count } = expertCounts(experts);
    writeCounts(file, shape, { expert_count, expert_used_count });
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
    }
  },
};
