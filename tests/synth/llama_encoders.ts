/** Encoders made of Llama's layers. */
import { type DecoderShape, writeAttention, writeCounts, writeFeedForward, writeReals } from "./decoder.ts";
import { norm } from "./encoders.ts";
import { type Family, TINY } from "./family.ts";
import { type LlamaShape, writeRopeFactors } from "./llama.ts";
import type { SynthFile } from "./file.ts";

function write(file: SynthFile, shape: DecoderShape): void {
  const { embedding } = shape;
  writeCounts(file, shape);
  writeReals(file, shape);
  file.key("attention.causal", "BOOL", false);
  file.matrix("token_embd", embedding, shape.vocabulary);
  norm(file, "output_norm", embedding, false);
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
