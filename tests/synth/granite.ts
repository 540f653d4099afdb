import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeReals,
  writeSharedExpert,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { writeLlama } from "./llama.ts";

/** The published models' multipliers but for the width of attention's heads, of which these have fewer dimensions. */
export const GRANITE: Family<DecoderShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e7 },
  real: {
    "granite-3.3-2b": {
      embedding: 2048,
      feedForward: 8192,
      layers: 40,
      vocabulary: 49_159,
      context: 131_072,
      heads: 32,
      kvHeads: 8,
      headDim: 64,
      ropeBase: 1e7,
    },
  },
  write(file, shape) {
    writeMultipliers(file, multipliers(shape));
    writeLlama(file, shape);
  },
};

/** Granite 3's with experts, which are as wide as the feed-forward's key says, and beside them one that all rows go through. */
export const GRANITEMOE: Family<
  DecoderShape & { readonly experts: ExpertsShape & { readonly shared: number } }
> = {
  tiny: {
    ...TINY,
    feedForward: 256,
    heads: 8,
    kvHeads: 2,
    headDim: 32,
    ropeBase: 1e4,
    experts: { count: 10, used: 3, feedForward: 256, shared: 512 },
  },
  real: {
    "granite-3.1-3b-a800m": {
      embedding: 1536,
      feedForward: 512,
      layers: 32,
      vocabulary: 49_155,
      context: 131_072,
      heads: 24,
      kvHeads: 8,
      headDim: 64,
      ropeBase: 1e7,
      experts: { count: 40, used: 8, feedForward: 512, shared: 0 },
    },
  },
  write(file, shape) {
    const { embedding, experts } = shape;
    writeMultipliers(file, multipliers(shape));
    const { expert_count, expert_used_count } = expertCounts(experts);
    writeCounts(file, shape, { expert_count, expert_used_count });
    if (experts.shared > 0) file.counts({ expert_shared_feed_forward_length: experts.shared });
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      writeExperts(file, block, embedding, experts);
      if (experts.shared > 0) writeSharedExpert(file, block, embedding, experts.shared);
    }
  },
};

/** Of the embedding, of what halves of layers add and of attention's scores, and what logits are divided by. */
export interface Multipliers {
  readonly embedding: number;
  readonly residual: number;
  readonly attention: number;
  readonly logits: number;
}

const multipliers = ({ headDim }: DecoderShape): Multipliers => {
  return { embedding: 12, residual: 0.22, attention: 1 / headDim, logits: 8 };
};

export function writeMultipliers(file: SynthFile, m: Multipliers): void {
  file.key("embedding_scale", "FLOAT32", m.embedding);
  file.key("residual_scale", "FLOAT32", m.residual);
  file.key("attention.scale", "FLOAT32", m.attention);
  file.key("logit_scale", "FLOAT32", m.logits);
}
