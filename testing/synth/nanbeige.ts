import type { Family } from "./family.ts";
import { TINY } from "./family.ts";
import { type LlamaShape, writeLlama } from "./llama.ts";

/** Llama's decoder, whose rows go through all layers several times. */
export const NANBEIGE: Family<LlamaShape & { readonly passes: number }> = {
  tiny: { ...TINY, layers: 3, heads: 8, kvHeads: 2, headDim: 64, ropeBase: 5e4, untied: true, passes: 3 },
  real: {
    "nanbeige4.2-3b": {
      embedding: 3072,
      feedForward: 10_752,
      layers: 22,
      vocabulary: 166_144,
      context: 262_144,
      heads: 48,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 7e7,
      untied: true,
      passes: 2,
    },
  },
  write(file, shape) {
    file.key("num_loops", "UINT32", shape.passes);
    file.key("skip_loop_final_norm", "BOOL", false);
    writeLlama(file, shape);
  },
};
