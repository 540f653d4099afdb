import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";

/**
 * Gemma 1 and CodeGemma: Llama's decoder with GeGLU and a scaled embedding. The file's norm weights already
 * include Gemma's + 1. Source: "Gemma" (arXiv 2403.08295).
 */
export const GEMMA: Architecture = {
  build: (b, h, rope) =>
    buildLlama(b, h, rope, {
      interleavedRope: false,
      headNorms: false,
      scales: { embedding: Math.sqrt(h.embeddingLength) },
      gate: "gelu",
    }),
};
