import {
  type DecoderShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeFeedForward,
  writeReals,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

export interface LlamaShape extends DecoderShape {
  /** Has Llama 3's factors on the rotary frequencies. */
  readonly ropeFactors?: boolean;
}

/** The family that has Llama's tensors, but for the name of the norm before the feed-forward. */
export function writeLlama(file: SynthFile, shape: LlamaShape, feedForwardNorm = "ffn_norm"): void {
  writeCounts(file, shape);
  writeReals(file, shape);
  writeEnds(file, shape);
  writeRopeFactors(file, shape);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, shape.embedding);
    writeAttention(file, block, shape);
    file.vector(`${block}.${feedForwardNorm}.weight`, shape.embedding);
    writeFeedForward(file, block, shape);
  }
}

/** Llama 3's, where the shape has them. */
export function writeRopeFactors(file: SynthFile, { ropeFactors, headDim }: LlamaShape): void {
  if (!ropeFactors) return;
  const length = headDim / 2;
  file.floats("rope_freqs.weight", [length], (_, i) => 1 + 7 * i / (length - 1));
}

export const LLAMA: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 4, headDim: 32, ropeBase: 5e5, untied: true, ropeFactors: true },
  write: writeLlama,
};
export const QWEN2: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e6, biases: true },
  write: writeLlama,
};
export const HUNYUAN_DENSE: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 64, ropeBase: 1e6, headNorms: true },
  real: {
    "hunyuan-1.8b": {
      embedding: 2048,
      feedForward: 6144,
      layers: 32,
      vocabulary: 120_818,
      context: 262_144,
      heads: 16,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 1.1158840e7,
      headNorms: true,
    },
  },
  write: writeLlama,
};
export const MAINCODER: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 96, ropeBase: 1e6, headNorms: true },
  real: {
    "maincoder-1b": {
      embedding: 1536,
      feedForward: 4096,
      layers: 32,
      vocabulary: 151_936,
      context: 2048,
      heads: 16,
      kvHeads: 4,
      headDim: 96,
      ropeBase: 1e6,
      headNorms: true,
    },
  },
  write: writeLlama,
};
/** Heads are together wider than the embedding. */
export const GEMMA: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 1, headDim: 64, ropeBase: 1e4 },
  real: {
    "gemma-2b": {
      embedding: 2048,
      feedForward: 16_384,
      layers: 18,
      vocabulary: 256_000,
      context: 8192,
      heads: 8,
      kvHeads: 1,
      headDim: 256,
      ropeBase: 1e4,
    },
  },
  write: writeLlama,
};
export const QWEN3: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 4, headDim: 64, ropeBase: 1e6, headNorms: true },
  real: {
    "qwen3-0.6b": {
      embedding: 1024,
      feedForward: 3072,
      layers: 28,
      vocabulary: 151_936,
      context: 40_960,
      heads: 16,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 1e6,
      headNorms: true,
    },
  },
  write: writeLlama,
};
/** Heads are together wider than the embedding. */
export const SEED_OSS: Family<LlamaShape> = {
  tiny: { ...TINY, heads: 12, kvHeads: 2, headDim: 64, ropeBase: 1e7, untied: true, biases: true },
  real: {
    "seed-oss-36b": {
      embedding: 5120,
      feedForward: 27_648,
      layers: 64,
      vocabulary: 155_136,
      context: 524_288,
      heads: 80,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 1e7,
      untied: true,
      biases: true,
    },
  },
  write: (file, shape) => writeLlama(file, shape, "post_attention_norm"),
};
