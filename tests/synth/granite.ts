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
    writeMultipliers(file, shape);
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
    writeMultipliers(file, shape);
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
      if (experts.shared === 0) continue;
      for (const name of ["ffn_gate_shexp", "ffn_up_shexp"]) {
        file.matrix(`${block}.${name}`, embedding, experts.shared);
      }
      file.matrix(`${block}.ffn_down_shexp`, experts.shared, embedding);
    }
  },
};

function writeMultipliers(file: SynthFile, { headDim }: DecoderShape): void {
  file.key("embedding_scale", "FLOAT32", 12);
  file.key("residual_scale", "FLOAT32", 0.22);
  file.key("attention.scale", "FLOAT32", 1 / headDim);
  file.key("logit_scale", "FLOAT32", 8);
}
