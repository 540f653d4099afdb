import { type DecoderShape, writeAttention, writeCounts, writeEnds, writeReals } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

interface ArceeShape extends DecoderShape {
  /** YaRN's, beyond which contexts are stretched. */
  readonly originalContext: number;
}

/** Matrices without a gate, and YaRN. */
function write(file: SynthFile, shape: ArceeShape): void {
  const { embedding, feedForward } = shape;
  file.key("rope.scaling.type", "STRING", "yarn");
  file.key("rope.scaling.factor", "FLOAT32", 20);
  writeCounts(file, shape, { "rope.scaling.original_context_length": shape.originalContext });
  writeReals(file, shape);
  writeEnds(file, shape);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    writeAttention(file, block, shape);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    file.matrix(`${block}.ffn_up`, embedding, feedForward);
    file.matrix(`${block}.ffn_down`, feedForward, embedding);
  }
}

/** Heads are together wider than the embedding. */
export const ARCEE: Family<ArceeShape> = {
  tiny: { ...TINY, heads: 8, kvHeads: 2, headDim: 64, ropeBase: 1e4, untied: true, originalContext: 64 },
  real: {
    "afm-4.5b": {
      embedding: 2560,
      feedForward: 18_432,
      layers: 36,
      vocabulary: 128_005,
      context: 65_536,
      heads: 20,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 1e4,
      untied: true,
      originalContext: 4096,
    },
  },
  write,
};
