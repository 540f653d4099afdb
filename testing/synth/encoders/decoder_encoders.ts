/** Seeded encoders with a decoder's layers. */
import {
  decoder,
  type DecoderShape,
  published,
  writeAttention,
  writeCounts,
  writeFeedForward,
  writeReals,
  writeRopeFactors,
} from "../decoder.ts";
import { affine, norm } from "./encoders.ts";
import { type SynthModel, TINY } from "../model.ts";
import type { SynthFile } from "../file.ts";

/** Writes the keys, the token embedding and the norm after the last layer. */
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

export const EUROBERT: SynthModel<DecoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4, kvHeads: 2, headDim: 64, ropeBase: 250_000 },
  real: {
    "eurobert-210m": published([768, 3072, 12, 128_256, 8192], [12, 12, 64], 250_000),
    "eurobert-610m": published([1152, 4096, 26, 128_256, 8192], [18, 6, 64], 250_000),
  },
  write,
};

export const LLAMA_EMBED: SynthModel<DecoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 5e5, ropeFactors: true },
  real: {
    "llama-nemotron-embed-1b": published([2048, 8192, 16, 128_256, 8192], [32, 8, 64], 5e5, {
      ropeFactors: true,
    }),
    "llama-embed-nemotron-8b": published([4096, 14_336, 32, 128_256, 32_768], [32, 8, 128], 5e5, {
      ropeFactors: true,
    }),
  },
  write,
};

export const NEO_BERT: SynthModel<DecoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4, kvHeads: 4, headDim: 64, ropeBase: 10_000 },
  real: {
    neobert: published([768, 2048, 28, 30_522, 4096], [12, 12, 64], 10_000),
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

interface GemmaEmbeddingShape extends DecoderShape {
  /** Number of rows of the first of the two matrices after pooling. */
  readonly features: number;
}

export const GEMMA_EMBEDDING = decoder<GemmaEmbeddingShape>("gemma-embedding", {
  tiny: { layers: 7, heads: 4, kvHeads: 1, headDim: 64, ropeBase: 1e6, window: 24, features: 512 },
  real: {
    "embeddinggemma-300m": published([768, 1152, 24, 262_144, 2048], [3, 1, 256], 1e6, {
      window: 512,
      features: 3072,
    }),
  },
  last(file, shape) {
    file.counts({
      pooling_type: 1, // mean pooling
      dense_2_feat_in: shape.embedding,
      dense_2_feat_out: shape.features,
      dense_3_feat_in: shape.features,
      dense_3_feat_out: shape.embedding,
    });
    file.matrix("dense_2", shape.embedding, shape.features);
    file.matrix("dense_3", shape.features, shape.embedding);
  },
});
