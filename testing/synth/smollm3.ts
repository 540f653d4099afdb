import type { DecoderShape } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import { writeLlama } from "./llama.ts";

export const SMOLLM3: Family<DecoderShape> = {
  tiny: { ...TINY, layers: 5, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 5e6 },
  real: {
    "smollm3-3b": {
      embedding: 2048,
      feedForward: 11_008,
      layers: 36,
      vocabulary: 128_256,
      context: 65_536,
      heads: 16,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 5e6,
    },
  },
  write: writeLlama,
};
