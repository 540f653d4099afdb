import type { DecoderShape } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
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
    file.key("embedding_scale", "FLOAT32", 12);
    file.key("residual_scale", "FLOAT32", 0.22);
    file.key("attention.scale", "FLOAT32", 1 / shape.headDim);
    file.key("logit_scale", "FLOAT32", 8);
    writeLlama(file, shape);
  },
};
