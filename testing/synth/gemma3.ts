import {
  type DecoderShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeFeedForward,
  writeReals,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

export interface Gemma3Shape extends DecoderShape {
  /** Tokens that layers with a window see. */
  readonly window: number;
  /** Stretches the positions of layers without a window. */
  readonly factor?: number;
  /** What bounds the scores of attention, and the logits. */
  readonly softcaps?: { readonly scores: number; readonly logits: number };
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
  write: writeGemma3,
};

export const GEMMA2: Family<Gemma3Shape> = {
  tiny: {
    ...TINY,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e4,
    window: 24,
    softcaps: { scores: 2, logits: 20 },
  },
  real: {
    "gemma2-2b": {
      embedding: 2304,
      feedForward: 9216,
      layers: 26,
      vocabulary: 256_000,
      context: 8192,
      heads: 8,
      kvHeads: 4,
      headDim: 256,
      ropeBase: 1e4,
      window: 4096,
      softcaps: { scores: 50, logits: 30 },
    },
  },
  write: writeGemma3,
};

function writeGemma3(file: SynthFile, shape: Gemma3Shape): void {
  writeCounts(file, shape, { "attention.sliding_window": shape.window });
  writeReals(file, shape);
  if (shape.factor) {
    file.key("rope.scaling.type", "STRING", "linear");
    file.key("rope.scaling.factor", "FLOAT32", shape.factor);
  }
  if (shape.softcaps) {
    file.key("attn_logit_softcapping", "FLOAT32", shape.softcaps.scores);
    file.key("final_logit_softcapping", "FLOAT32", shape.softcaps.logits);
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
}
