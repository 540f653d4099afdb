import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  published,
  writeAttention,
  writeExperts,
  writeFeedForward,
  writeReals,
} from "./decoder.ts";
import { type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

/** Layers with gated short convolutions, and some attention layers. */
interface Lfm2Shape extends DecoderShape {
  readonly taps: number;
  /** Indices of the attention layers. */
  readonly attention: readonly number[];
}

interface Lfm2MoeShape extends Lfm2Shape {
  readonly experts: ExpertsShape;
  /** Number of first layers without experts. */
  readonly leadingDense: number;
}

export const LFM2: SynthModel<Lfm2Shape> = {
  tiny: {
    ...TINY,
    layers: 6,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    headNorms: true,
    taps: 3,
    attention: [2, 5],
  },
  real: {
    "lfm2-1.2b": published([2048, 8192, 16, 65_536, 128_000], [32, 8, 64], 1e6, {
      headNorms: true,
      taps: 3,
      attention: [2, 5, 8, 10, 12, 14],
    }),
  },
  write: (file, shape) => writeLfm2(file, shape, {}, (block) => writeFeedForward(file, block, shape)),
};

export const LFM2MOE: SynthModel<Lfm2MoeShape> = {
  tiny: {
    ...TINY,
    layers: 6,
    heads: 8,
    kvHeads: 2,
    headDim: 32,
    ropeBase: 5e6,
    headNorms: true,
    taps: 3,
    attention: [2, 5],
    experts: { count: 12, used: 3, feedForward: 256 },
    leadingDense: 2,
  },
  real: {
    "lfm2-8b-a1b": published([2048, 7168, 24, 65_536, 128_000], [32, 8, 64], 1e6, {
      headNorms: true,
      taps: 3,
      attention: [2, 6, 10, 14, 18, 21],
      experts: { count: 32, used: 4, feedForward: 1792 },
      leadingDense: 2,
    }),
  },
  write(file, shape) {
    const { experts, leadingDense, embedding } = shape;
    const counts = {
      ...expertCounts(experts),
      expert_gating_func: 2, // sigmoid
      leading_dense_block_count: leadingDense,
    };
    writeLfm2(file, shape, counts, (block, layer) => {
      if (layer < leadingDense) return writeFeedForward(file, block, shape);
      writeExperts(file, block, embedding, experts);
      file.vector(`${block}.exp_probs_b.bias`, experts.count, 0, 0.2);
    });
  },
};

function writeLfm2(
  file: SynthFile,
  shape: Lfm2Shape,
  more: Readonly<Record<string, number>>,
  feedForward: (block: string, layer: number) => void,
): void {
  const { embedding, taps } = shape;
  const attends = (layer: number) => shape.attention.includes(layer);
  file.counts({
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: embedding,
    feed_forward_length: shape.feedForward,
    "attention.head_count": shape.heads,
    "shortconv.l_cache": taps,
    vocab_size: shape.vocabulary,
    ...more,
  });
  const kvHeads = Array.from({ length: shape.layers }, (_, layer) => attends(layer) ? shape.kvHeads : 0);
  file.keys("attention.head_count_kv", "INT32", kvHeads);
  writeReals(file, shape);
  file.matrix("token_embd", embedding, shape.vocabulary);
  file.vector("token_embd_norm.weight", embedding, 6);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    if (attends(layer)) writeAttention(file, block, shape);
    else {
      file.matrix(`${block}.shortconv.in_proj`, embedding, 3 * embedding);
      file.floats(`${block}.shortconv.conv.weight`, [taps, embedding], (random) => random.normal());
      file.matrix(`${block}.shortconv.out_proj`, embedding, embedding);
    }
    file.vector(`${block}.ffn_norm.weight`, embedding);
    feedForward(block, layer);
  }
}
