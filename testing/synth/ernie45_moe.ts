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

/** Experts behind the first layers, and beside them some that all rows go through. */
interface Ernie45MoeShape extends DecoderShape {
  readonly experts: ExpertsShape & { readonly shared: number };
  readonly leadingDense: number;
}

export const ERNIE45_MOE: Family<Ernie45MoeShape> = {
  tiny: {
    ...TINY,
    heads: 10,
    kvHeads: 2,
    headDim: 128,
    ropeBase: 5e5,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2 },
    leadingDense: 1,
  },
  real: {
    "ernie-4.5-21b-a3b": {
      embedding: 2560,
      feedForward: 12_288,
      layers: 28,
      vocabulary: 103_424,
      context: 131_072,
      heads: 20,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 5e5,
      experts: { count: 64, used: 6, feedForward: 1536, shared: 2 },
      leadingDense: 1,
    },
  },
  write(file, shape) {
    const { embedding, experts, leadingDense } = shape;
    const shared = experts.shared * experts.feedForward;
    writeCounts(file, shape, {
      ...expertCounts(experts),
      expert_shared_count: experts.shared,
      expert_shared_feed_forward_length: shared,
      interleave_moe_layer_step: 1,
      leading_dense_block_count: leadingDense,
    });
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
      file.vector(`${block}.exp_probs_b.bias`, experts.count, 0, 0.1);
      writeSharedExpert(file, block, embedding, shared);
    }
  },
};
