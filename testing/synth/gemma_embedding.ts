import { type Family, TINY } from "./family.ts";
import { GEMMA3, type Gemma3Shape } from "./gemma3.ts";

interface GemmaEmbeddingShape extends Gemma3Shape {
  /** Rows of the first of two matrices that a text's mean goes through. */
  readonly features: number;
}

export const GEMMA_EMBEDDING: Family<GemmaEmbeddingShape> = {
  encoder: true,
  tiny: {
    ...TINY,
    layers: 7,
    heads: 4,
    kvHeads: 1,
    headDim: 64,
    ropeBase: 1e6,
    headNorms: true,
    window: 24,
    features: 512,
  },
  real: {
    "embeddinggemma-300m": {
      embedding: 768,
      feedForward: 1152,
      layers: 24,
      vocabulary: 262_144,
      context: 2048,
      heads: 3,
      kvHeads: 1,
      headDim: 256,
      ropeBase: 1e6,
      headNorms: true,
      window: 512,
      features: 3072,
    },
  },
  write(file, shape) {
    GEMMA3.write(file, shape);
    file.counts({
      pooling_type: 1, // mean
      dense_2_feat_in: shape.embedding,
      dense_2_feat_out: shape.features,
      dense_3_feat_in: shape.features,
      dense_3_feat_out: shape.embedding,
    });
    file.matrix("dense_2", shape.embedding, shape.features);
    file.matrix("dense_3", shape.features, shape.embedding);
  },
};
