/** GPT-NeoX and decoders that came of it. */
import { type DecoderShape, writeAttention, writeCounts, writeEnds, writeFeedForward } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { writeHeadNorms, writeUngated } from "./layer_normed.ts";

interface NeoxShape extends DecoderShape {
  /** Queries, keys and values are one matrix. */
  readonly fused?: boolean;
  /** The feed-forward half has a gate, and no biases. */
  readonly gated?: boolean;
  /** Both halves of a layer have one norm. */
  readonly oneNorm?: boolean;
  /** What the key says. */
  readonly parallel?: boolean;
  /** Each head has a LayerNorm of its own. */
  readonly headLayerNorms?: boolean;
  readonly outputBias?: boolean;
}

function write(file: SynthFile, shape: NeoxShape): void {
  const { embedding, vocabulary, parallel } = shape;
  writeCounts(file, shape);
  file.key("rope.freq_base", "FLOAT32", shape.ropeBase);
  file.key("attention.layer_norm_epsilon", "FLOAT32", 1e-5);
  if (parallel !== undefined) file.key("use_parallel_residual", "BOOL", parallel);
  writeEnds(file, shape);
  file.vector("output_norm.bias", embedding, 0);
  if (shape.outputBias) file.vector("output.bias", vocabulary, 0, 1);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    for (const norm of shape.oneNorm ? ["attn_norm"] : ["attn_norm", "ffn_norm"]) {
      file.vector(`${block}.${norm}.weight`, embedding);
      file.vector(`${block}.${norm}.bias`, embedding, 0);
    }
    if (shape.fused) writeFused(file, block, shape);
    else writeAttention(file, block, shape);
    if (shape.headLayerNorms) writeHeadNorms(file, block, shape);
    if (shape.gated) writeFeedForward(file, block, shape);
    else writeUngated(file, block, shape);
  }
}

function writeFused(file: SynthFile, block: string, shape: NeoxShape): void {
  const { embedding, heads, kvHeads, headDim } = shape;
  const rows = (heads + 2 * kvHeads) * headDim;
  file.matrix(`${block}.attn_qkv`, embedding, rows);
  file.vector(`${block}.attn_qkv.bias`, rows, 0);
  file.matrix(`${block}.attn_output`, heads * headDim, embedding);
}

const NEOX = { ropeBase: 1e4, untied: true } as const;
const PYTHIA = { ...NEOX, fused: true, biases: true, parallel: true } as const;

/** llama.cpp has no other heads of these than those that are as wide as the embedding together. */
export const GPTNEOX: Family<NeoxShape> = {
  tiny: { ...TINY, ...PYTHIA, heads: 4, kvHeads: 4, headDim: 64, rotated: 16 },
  real: {
    "pythia-1.4b": {
      ...PYTHIA,
      embedding: 2048,
      feedForward: 8192,
      layers: 24,
      vocabulary: 50_304,
      context: 2048,
      heads: 16,
      kvHeads: 16,
      headDim: 128,
      rotated: 32,
    },
  },
  write,
};
const PHI = { ...NEOX, biases: true, oneNorm: true, outputBias: true } as const;
export const PHI2: Family<NeoxShape> = {
  tiny: { ...TINY, ...PHI, heads: 4, kvHeads: 4, headDim: 64, rotated: 24 },
  real: {
    "phi-2": {
      ...PHI,
      embedding: 2560,
      feedForward: 10_240,
      layers: 32,
      vocabulary: 51_200,
      context: 2048,
      heads: 32,
      kvHeads: 32,
      headDim: 80,
      rotated: 32,
    },
  },
  write,
};
const STABLE = { ...NEOX, gated: true } as const;
/** Files of the 3B say that its halves are side by side; they are not. */
export const STABLELM: Family<NeoxShape> = {
  tiny: { ...TINY, ...STABLE, biases: true, parallel: true, heads: 8, kvHeads: 4, headDim: 32, rotated: 8 },
  real: {
    "stablelm2-1.6b": {
      ...STABLE,
      biases: true,
      parallel: false,
      embedding: 2048,
      feedForward: 5632,
      layers: 24,
      vocabulary: 100_352,
      context: 4096,
      heads: 32,
      kvHeads: 32,
      headDim: 64,
      rotated: 16,
    },
  },
  write,
};
export const STABLELM_12B: Family<NeoxShape> = {
  architecture: "stablelm",
  tiny: {
    ...TINY,
    ...STABLE,
    oneNorm: true,
    parallel: true,
    headLayerNorms: true,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    rotated: 20,
  },
  real: {
    "stablelm2-12b": {
      ...STABLE,
      oneNorm: true,
      parallel: true,
      headLayerNorms: true,
      embedding: 5120,
      feedForward: 13_824,
      layers: 40,
      vocabulary: 100_352,
      context: 4096,
      heads: 32,
      kvHeads: 8,
      headDim: 160,
      rotated: 40,
    },
  },
  write,
};
