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
  writeRouter,
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

interface WindowedShape extends DecoderShape {
  /** Tokens that a row sees, but for the first and then every fourth layer's, which have no positions. */
  readonly window: number;
  /** By default the feed-forward half is one for all rows. */
  readonly experts?: ExpertsShape & { readonly shared: number };
}

/** Granite with windows, and scores of heads that only take weight. */
export const GRANITE_SWA: Family<WindowedShape> = {
  tiny: { ...TINY, layers: 6, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e4, window: 40 },
  real: {
    "granite-swash-2b": {
      embedding: 2560,
      feedForward: 8192,
      layers: 24,
      vocabulary: 100_352,
      context: 8192,
      heads: 20,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 1e4,
      window: 128,
    },
  },
  write: writeWindowed,
};

/** The same with experts, of which gate and up are one tensor, and so they are of the one that all rows go through. */
export const GRANITE_SWA_MOE: Family<WindowedShape> = {
  architecture: "granite_swa",
  tiny: {
    ...GRANITE_SWA.tiny,
    feedForward: 256,
    layers: 5,
    experts: { count: 10, used: 3, feedForward: 256, shared: 512 },
  },
  write: writeWindowed,
};

function writeWindowed(file: SynthFile, shape: WindowedShape): void {
  const { embedding, layers, experts } = shape;
  // Not the published ones: seeded heads would see all tokens alike, and windows, sinks and positions hardly show.
  writeMultipliers(file, { embedding: 3, residual: 0.7, attention: 0.5, logits: 0.8 });
  const { expert_count, expert_used_count } = experts ? expertCounts(experts) : {};
  writeCounts(file, shape, {
    "attention.sliding_window": shape.window,
    ...experts && { expert_count, expert_used_count, expert_shared_feed_forward_length: experts.shared },
  });
  const slides = Array.from({ length: layers }, (_, i) => i % 4 !== 0);
  file.keys("attention.sliding_window_pattern", "BOOL", slides);
  file.keys("attention.rope_pattern", "BOOL", slides);
  writeReals(file, shape);
  writeEnds(file, shape);
  for (let layer = 0; layer < layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    writeAttention(file, block, shape);
    file.vector(`${block}.attn_sinks.weight`, shape.heads, 0, 2);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    if (experts) writeFusedExperts(file, block, embedding, experts);
    else writeFeedForward(file, block, shape);
  }
}

function writeFusedExperts(
  file: SynthFile,
  block: string,
  embedding: number,
  { count, feedForward, shared }: ExpertsShape & { readonly shared: number },
): void {
  writeRouter(file, block, embedding, count);
  file.matrix(`${block}.ffn_gate_up_exps`, embedding, 2 * feedForward, count);
  file.matrix(`${block}.ffn_down_exps`, feedForward, embedding, count);
  file.matrix(`${block}.ffn_up_shexp`, embedding, 2 * shared);
  file.matrix(`${block}.ffn_down_shexp`, shared, embedding);
}

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
