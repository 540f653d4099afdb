import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";

/** MiniCPM 1 and 2's scales, for files of older converters, which wrote none. */
const DEFAULTS = { embedding: 12, depth: 1.4, baseWidth: 256 };

/**
 * MiniCPM 1, 2, 4 and 4.1: Llama's decoder with scales on the embedding and residual additions, and a divisor
 * of the logits. LongRoPE where the file has its factors. Sources: "MiniCPM" (arXiv 2404.06395), "MiniCPM4"
 * (2506.07900).
 */
export const MINICPM: Architecture = {
  // Divides by the default, as do llama.cpp's older releases and the checkpoint's own code. Newer llama.cpp
  // inverts it.
  ending: (keys, h) => ({
    logits: { scale: 1 / keys.scale("logit_scale", h.embeddingLength / DEFAULTS.baseWidth) },
  }),
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    return buildLlama(b, h, rope, {
      interleavedRope: true,
      headNorms: false,
      scales: {
        embedding: keys.scale("embedding_scale", DEFAULTS.embedding),
        residual: keys.scale("residual_scale", DEFAULTS.depth / Math.sqrt(h.blockCount)),
      },
    });
  },
};
