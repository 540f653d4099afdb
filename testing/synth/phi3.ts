import { type DecoderShape, writeCounts, writeEnds, writeReals } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

interface Phi3Shape extends DecoderShape {
  /** LongRoPE's factors apply to contexts beyond this one. */
  readonly originalContext?: number;
}

function write(file: SynthFile, shape: Phi3Shape): void {
  const { embedding, feedForward, heads, kvHeads, headDim, originalContext } = shape;
  writeCounts(file, shape, {
    "attention.sliding_window": 2047,
    ...originalContext && { "rope.scaling.original_context_length": originalContext },
  });
  writeReals(file, shape);
  writeEnds(file, shape);
  if (originalContext) {
    const pairs = (shape.rotated ?? headDim) / 2;
    file.key("rope.scaling.attn_factor", "FLOAT32", 1.19);
    file.floats("rope_factors_long.weight", [pairs], (_, i) => 1 + 30 * i / pairs);
    file.floats("rope_factors_short.weight", [pairs], (_, i) => 1 + 2 * i / pairs);
  }
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    file.matrix(`${block}.attn_qkv`, embedding, (heads + 2 * kvHeads) * headDim);
    file.matrix(`${block}.attn_output`, heads * headDim, embedding);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
    file.matrix(`${block}.ffn_down`, feedForward, embedding);
  }
}

const PHI3_TINY = { ...TINY, heads: 8, kvHeads: 4, headDim: 32, ropeBase: 1e4, untied: true };

/** Its tests run in contexts of up to the original one. */
export const PHI3: Family<Phi3Shape> = {
  tiny: { ...PHI3_TINY, rotated: 24, originalContext: 2000 },
  real: {
    "phi3-mini": {
      embedding: 3072,
      feedForward: 8192,
      layers: 32,
      vocabulary: 32_064,
      context: 4096,
      heads: 32,
      kvHeads: 32,
      headDim: 96,
      ropeBase: 1e4,
      untied: true,
    },
  },
  write,
};
/** Its tests run in longer ones. */
export const PHI3_LONG: Family<Phi3Shape> = {
  architecture: "phi3",
  tiny: { ...PHI3_TINY, originalContext: 64 },
  write,
};
