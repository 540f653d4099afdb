import {
  type DecoderShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeFeedForward,
  writeReals,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";

export interface Gemma3Shape extends DecoderShape {
  /** Tokens that layers with a window see. */
  readonly window: number;
  /** Stretches the positions of layers without a window. */
  readonly factor?: number;
}

export const GEMMA3: Family<Gemma3Shape> = {
  tiny: {
    ...TINY,
    layers: 7,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    headNorms: true,
    window: 24,
    factor: 8,
  },
  real: {
    "gemma3-1b": {
      embedding: 1152,
      feedForward: 6912,
      layers: 26,
      vocabulary: 262_144,
      context: 32_768,
      heads: 4,
      kvHeads: 1,
      headDim: 256,
      ropeBase: 1e6,
      headNorms: true,
      window: 512,
    },
  },
  write(file, shape) {
    writeCounts(file, shape, { "attention.sliding_window": shape.window });
    writeReals(file, shape);
    if (shape.factor) {
      file.key("rope.scaling.type", "STRING", "linear");
      file.key("rope.scaling.factor", "FLOAT32", shape.factor);
    }
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      for (const norm of ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"]) {
        file.vector(`${block}.${norm}.weight`, shape.embedding);
      }
      writeAttention(file, block, shape);
      writeFeedForward(file, block, shape);
    }
  },
};
