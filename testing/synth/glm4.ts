import { type DecoderShape, writeAttention, writeCounts, writeEnds, writeReals } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";

export const GLM4: Family<DecoderShape> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 32,
    rotated: 16,
    ropeBase: 1e4,
    untied: true,
    biases: true,
  },
  real: {
    "glm-4-9b": {
      embedding: 4096,
      feedForward: 13_696,
      layers: 40,
      vocabulary: 151_552,
      context: 32_768,
      heads: 32,
      kvHeads: 2,
      headDim: 128,
      rotated: 64,
      ropeBase: 1e4,
      untied: true,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeCounts(file, shape);
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      for (const norm of ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"]) {
        file.vector(`${block}.${norm}.weight`, embedding);
      }
      writeAttention(file, block, shape);
      file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
      file.matrix(`${block}.ffn_down`, feedForward, embedding);
    }
  },
};
