/** Decoders with LayerNorm: Cohere's, StarCoder2 and Nemotron. */
import { type DecoderShape, writeAttention, writeCounts, writeEnds, writeFeedForward } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

interface LayerNormedShape extends DecoderShape {
  /** Norms have biases, and so has what attention and a feed-forward half without a gate add, where `biases` says so. */
  readonly normBiases?: boolean;
  /** Both halves of a layer have one norm, and the feed-forward half has a gate. */
  readonly parallel?: boolean;
  /** Each head has a LayerNorm of its own. */
  readonly headLayerNorms?: boolean;
  readonly logitScale?: number;
  /** Tokens that a row sees, but for every fourth layer's. */
  readonly window?: number;
}

function write(file: SynthFile, shape: LayerNormedShape): void {
  const { embedding, window } = shape;
  writeCounts(file, shape, window === undefined ? {} : { "attention.sliding_window": window });
  file.key("rope.freq_base", "FLOAT32", shape.ropeBase);
  file.key("attention.layer_norm_epsilon", "FLOAT32", 1e-5);
  if (shape.logitScale !== undefined) file.key("logit_scale", "FLOAT32", shape.logitScale);
  writeEnds(file, shape);
  if (shape.normBiases) file.vector("output_norm.bias", embedding, 0);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    for (const norm of shape.parallel ? ["attn_norm"] : ["attn_norm", "ffn_norm"]) {
      file.vector(`${block}.${norm}.weight`, embedding);
      if (shape.normBiases) file.vector(`${block}.${norm}.bias`, embedding, 0);
    }
    writeAttention(file, block, shape);
    if (shape.headLayerNorms) writeHeadNorms(file, block, shape);
    if (shape.parallel) writeFeedForward(file, block, shape);
    else writeUngated(file, block, shape);
  }
}

export function writeHeadNorms(
  file: SynthFile,
  block: string,
  { heads, kvHeads, headDim }: DecoderShape,
): void {
  for (const [part, count] of [["q", heads], ["k", kvHeads]] as const) {
    const name = `${block}.attn_${part}_norm.weight`;
    file.floats(name, [headDim, count], (random) => 1 + 0.1 * random.normal());
  }
}

export function writeUngated(file: SynthFile, block: string, shape: DecoderShape): void {
  const { embedding, feedForward } = shape;
  file.matrix(`${block}.ffn_up`, embedding, feedForward);
  file.matrix(`${block}.ffn_down`, feedForward, embedding);
  if (!shape.biases) return;
  file.vector(`${block}.ffn_up.bias`, feedForward, 0);
  for (const part of ["attn_output", "ffn_down"]) file.vector(`${block}.${part}.bias`, embedding, 0);
}

const COHERE = { parallel: true, ropeBase: 1e4 } as const;

/** The last layer has a window too. */
export const COHERE2: Family<LayerNormedShape> = {
  tiny: { ...TINY, ...COHERE, layers: 5, heads: 8, kvHeads: 2, headDim: 32, window: 40, logitScale: 0.75 },
  real: {
    "command-r7b": {
      ...COHERE,
      embedding: 4096,
      feedForward: 14_336,
      layers: 32,
      vocabulary: 256_000,
      context: 132_096,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 5e4,
      window: 4096,
      logitScale: 0.25,
    },
  },
  write,
};
export const COMMAND_R: Family<LayerNormedShape> = {
  tiny: { ...TINY, ...COHERE, heads: 4, kvHeads: 2, headDim: 64, logitScale: 1.25 },
  real: {
    "aya-expanse-8b": {
      ...COHERE,
      embedding: 4096,
      feedForward: 14_336,
      layers: 32,
      vocabulary: 256_000,
      context: 8192,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      logitScale: 0.125,
    },
  },
  write,
};
/** llama.cpp knows the norms of heads by the number of layers. */
export const COMMAND_R_PLUS: Family<LayerNormedShape> = {
  architecture: "command-r",
  tiny: {
    ...COMMAND_R.tiny,
    feedForward: 256,
    layers: 64,
    heads: 8,
    headDim: 32,
    headLayerNorms: true,
  },
  real: {
    "command-r-plus": {
      ...COHERE,
      embedding: 12_288,
      feedForward: 33_792,
      layers: 64,
      vocabulary: 256_000,
      context: 131_072,
      heads: 96,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 7.5e7,
      headLayerNorms: true,
      logitScale: 0.8333333333333334,
    },
  },
  write,
};

/** llama.cpp has no other heads of these than those that are as wide as the embedding together. */
export const STARCODER2: Family<LayerNormedShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e5, biases: true, normBiases: true },
  real: {
    "starcoder2-3b": {
      embedding: 3072,
      feedForward: 12_288,
      layers: 30,
      vocabulary: 49_152,
      context: 16_384,
      heads: 24,
      kvHeads: 2,
      headDim: 128,
      ropeBase: 1e6,
      biases: true,
      normBiases: true,
    },
  },
  write,
};
/** No matrix has a bias. */
export const NEMOTRON: Family<LayerNormedShape> = {
  tiny: {
    ...TINY,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    rotated: 32,
    ropeBase: 1e4,
    untied: true,
    normBiases: true,
  },
  real: {
    "nemotron-mini-4b": {
      embedding: 3072,
      feedForward: 9216,
      layers: 32,
      vocabulary: 256_000,
      context: 4096,
      heads: 24,
      kvHeads: 8,
      headDim: 128,
      rotated: 64,
      ropeBase: 1e4,
      untied: true,
      normBiases: true,
    },
  },
  write,
};
