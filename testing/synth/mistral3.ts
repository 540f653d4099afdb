import type { DecoderShape } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import { writeLlama } from "./llama.ts";

/** YaRN beyond 64 tokens, where queries begin to grow. */
export const MISTRAL3: Family<DecoderShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e6, untied: true },
  real: {
    "ministral3-3b": {
      embedding: 3072,
      feedForward: 9216,
      layers: 26,
      vocabulary: 131_072,
      context: 262_144,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 1e6,
    },
  },
  write(file, shape) {
    file.key("rope.scaling.type", "STRING", "yarn");
    file.key("rope.scaling.factor", "FLOAT32", 16);
    file.key("rope.scaling.original_context_length", "UINT32", 64);
    file.key("rope.scaling.yarn_beta_fast", "FLOAT32", 32);
    file.key("rope.scaling.yarn_beta_slow", "FLOAT32", 1);
    file.key("rope.scaling.yarn_log_multiplier", "FLOAT32", 1);
    file.key("attention.temperature_scale", "FLOAT32", 0.1);
    writeLlama(file, shape);
  },
};
