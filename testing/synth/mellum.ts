import type { DecoderShape, ExpertsShape } from "./decoder.ts";
import type { Family } from "./family.ts";
import { QWEN3MOE } from "./qwen3moe.ts";

/** Qwen3's mixture of experts; but for every fourth, layers have windows, and the others have YaRN. */
export const MELLUM: Family<
  DecoderShape & {
    readonly experts: ExpertsShape;
    /** Tokens that a row sees. */
    readonly window: number;
    /** YaRN's. */
    readonly factor: number;
  }
> = {
  // The last layer has a window too, and its tests run beyond what YaRN takes for the original context.
  tiny: { ...QWEN3MOE.tiny, layers: 5, kvHeads: 1, ropeBase: 5e5, untied: true, window: 40, factor: 8 },
  real: {
    "mellum2-12b-a2.5b": {
      embedding: 2304,
      feedForward: 7168,
      layers: 28,
      vocabulary: 98_304,
      context: 131_072,
      heads: 32,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 5e5,
      headNorms: true,
      untied: true,
      experts: { count: 64, used: 8, feedForward: 896 },
      window: 1024,
      factor: 16,
    },
  },
  write(file, shape) {
    const { layers, window, factor, context } = shape;
    file.key("attention.sliding_window", "UINT32", window);
    file.keys(
      "attention.sliding_window_pattern",
      "BOOL",
      Array.from({ length: layers }, (_, i) => i % 4 !== 3),
    );
    file.key("rope.scaling.type", "STRING", "yarn");
    file.key("rope.scaling.factor", "FLOAT32", factor);
    file.key("rope.scaling.original_context_length", "UINT32", context / factor);
    QWEN3MOE.write(file, shape);
  },
};
