/** Encoders made of Llama's layers. */
import { type DecoderShape, writeAttention, writeCounts, writeFeedForward, writeReals } from "./decoder.ts";
import { affine, norm } from "./encoders.ts";
import { type Family, TINY } from "./family.ts";
import { type LlamaShape, writeRopeFactors } from "./llama.ts";
import type { SynthFile } from "./file.ts";

/** The keys, the table of tokens and the norm after the last layer. */
function writeModel(file: SynthFile, shape: DecoderShape, lastNorm = "output_norm"): void {
  writeCounts(file, shape);
  writeReals(file, shape);
  file.key("attention.causal", "BOOL", false);
  file.matrix("token_embd", shape.embedding, shape.vocabulary);
  norm(file, lastNorm, shape.embedding, false);
}

function write(file: SynthFile, shape: DecoderShape): void {
  const { embedding } = shape;
  writeModel(file, shape);
  writeRopeFactors(file, shape);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    norm(file, `${block}.attn_norm`, embedding, false);
    writeAttention(file, block, shape);
    norm(file, `${block}.ffn_norm`, embedding, false);
    writeFeedForward(file, block, shape);
  }
}

export const EUROBERT: Family<DecoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4, kvHeads: 2, headDim: 64, ropeBase: 250_000 },
  real: {
    "eurobert-210m": {
      embedding: 768,
      feedForward: 3072,
      layers: 12,
      vocabulary: 128_256,
      context: 8192,
      heads: 12,
      kvHeads: 12,
      headDim: 64,
      ropeBase: 250_000,
    },
    "eurobert-610m": {
      embedding: 1152,
      feedForward: 4096,
      layers: 26,
      vocabulary: 128_256,
      context: 8192,
      heads: 18,
      kvHeads: 6,
      headDim: 64,
      ropeBase: 250_000,
    },
  },
  write,
};

export const LLAMA_EMBED: Family<LlamaShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 5e5, ropeFactors: true },
  real: {
    "llama-nemotron-embed-1b": {
      embedding: 2048,
      feedForward: 8192,
      layers: 16,
      vocabulary: 128_256,
      context: 8192,
      heads: 32,
      kvHeads: 8,
      headDim: 64,
      ropeBase: 5e5,
      ropeFactors: true,
    },
    "llama-embed-nemotron-8b": {
      embedding: 4096,
      feedForward: 14_336,
      layers: 32,
      vocabulary: 128_256,
      context: 32_768,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 5e5,
      ropeFactors: true,
    },
  },
  write,
};

export const NEO_BERT: Family<DecoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4, kvHeads: 4, headDim: 64, ropeBase: 10_000 },
  real: {
    neobert: {
      embedding: 768,
      feedForward: 2048,
      layers: 28,
      vocabulary: 30_522,
      context: 4096,
      heads: 12,
      kvHeads: 12,
      headDim: 64,
      ropeBase: 10_000,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeModel(file, shape, "enc.output_norm");
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      norm(file, `${block}.attn_norm`, embedding, false);
      file.matrix(`${block}.attn_qkv`, embedding, 3 * embedding);
      file.matrix(`${block}.attn_output`, embedding, embedding);
      norm(file, `${block}.ffn_norm`, embedding, false);
      file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
      file.matrix(`${block}.ffn_down`, feedForward, embedding);
    }
  },
  writeHead: (file, { embedding }) => affine(file, "cls", embedding, embedding),
};
