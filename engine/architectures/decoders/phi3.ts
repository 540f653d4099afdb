import type { Architecture } from "../architecture.ts";
import { llamaLike } from "./llama.ts";

/**
 * Phi-3 and Phi-4: Llama's decoder with fused matrices, and LongRoPE where the file has its factors. The
 * window in some files is ignored, as in llama.cpp. Sources: "Phi-3 Technical Report" (arXiv 2404.14219),
 * "LongRoPE" (2402.13753).
 */
export const PHI3: Architecture = llamaLike({ interleavedRope: false, headNorms: false, fused: true });
