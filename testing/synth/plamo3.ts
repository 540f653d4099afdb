import { type DecoderShape, writeCounts, writeEnds, writeReals } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

interface Plamo3Shape extends DecoderShape {
  /** Tokens before its own that a row sees, but for the last layer's of so many. */
  readonly window: number;
  readonly period: number;
  /** Of layers with a window. */
  readonly nearBase: number;
}

function write(file: SynthFile, shape: Plamo3Shape): void {
  const { embedding, feedForward, heads, kvHeads, headDim, window, period } = shape;
  writeCounts(file, shape, {
    "attention.sliding_window": window,
    "attention.sliding_window_pattern": period,
  });
  writeReals(file, shape);
  file.key("rope.freq_base_swa", "FLOAT32", shape.nearBase);
  writeEnds(file, shape);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    file.matrix(`${block}.attn_qkv`, embedding, (heads + 2 * kvHeads) * headDim);
    for (const part of ["q", "k"]) file.vector(`${block}.attn_${part}_norm.weight`, headDim);
    file.matrix(`${block}.attn_output`, heads * headDim, embedding);
    // Published ones are near 1/5 and 1/11: halves add little to a row.
    file.vector(`${block}.post_attention_norm`, embedding, 0.2, 0.02);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
    file.matrix(`${block}.ffn_down`, feedForward, embedding);
    file.vector(`${block}.post_ffw_norm`, embedding, 0.09, 0.01);
  }
}

/** The window is longer than what is compared with llama.cpp, whose windows are one token shorter. */
export const PLAMO3: Family<Plamo3Shape> = {
  tiny: {
    ...TINY,
    layers: 5,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    nearBase: 1e4,
    window: 1024,
    period: 4,
  },
  write,
};
