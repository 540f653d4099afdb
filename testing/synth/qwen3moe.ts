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

export const QWEN3MOE: Family<DecoderShape & { readonly experts: ExpertsShape }> = {
  tiny: {
    ...TINY,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    headNorms: true,
    experts: { count: 12, used: 3, feedForward: 256 },
  },
  real: {
    "qwen3moe-30b-a3b": {
      embedding: 2048,
      feedForward: 6144,
      layers: 48,
      vocabulary: 151_936,
      context: 40_960,
      heads: 32,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 1e6,
      headNorms: true,
      untied: true,
      experts: { count: 128, used: 8, feedForward: 768 },
    },
  },
  write(file, shape) {
    writeCounts(file, shape, expertCounts(shape.experts));
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, shape.embedding);
      writeAttention(file, block, shape);
      file.vector(`${block}.ffn_norm.weight`, shape.embedding);
      writeExperts(file, block, shape.embedding, shape.experts);
    }
  },
};
