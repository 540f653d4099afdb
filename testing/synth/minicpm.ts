import type { DecoderShape } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import { writeLlama } from "./llama.ts";

interface MiniCpmShape extends DecoderShape {
  /** LongRoPE's long factors apply to contexts beyond this one. */
  readonly originalContext: number;
  readonly embeddingScale: number;
  /** Logits are divided by so many times of it as the embedding is wide. */
  readonly baseWidth: number;
}

/** Layers weigh more beside the embedding than in the published models, and its tests run in long contexts. */
export const MINICPM: Family<MiniCpmShape> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 32,
    ropeBase: 1e4,
    originalContext: 64,
    embeddingScale: 3,
    baseWidth: 192,
  },
  real: {
    "minicpm4-0.5b": {
      embedding: 1024,
      feedForward: 4096,
      layers: 24,
      vocabulary: 73_448,
      context: 32_768,
      heads: 16,
      kvHeads: 2,
      headDim: 64,
      ropeBase: 1e4,
      originalContext: 32_768,
      embeddingScale: 12,
      baseWidth: 256,
    },
  },
  write(file, shape) {
    const pairs = shape.headDim / 2;
    file.key("embedding_scale", "FLOAT32", shape.embeddingScale);
    file.key("residual_scale", "FLOAT32", 1.4 / Math.sqrt(shape.layers));
    file.key("logit_scale", "FLOAT32", shape.embedding / shape.baseWidth);
    file.key("rope.scaling.type", "STRING", "longrope");
    file.counts({ "rope.scaling.original_context_length": shape.originalContext });
    file.floats("rope_factors_long.weight", [pairs], (_, i) => 1 + 30 * i / pairs);
    file.floats("rope_factors_short.weight", [pairs], (_, i) => 1 + 2 * i / pairs);
    writeLlama(file, shape);
  },
};
