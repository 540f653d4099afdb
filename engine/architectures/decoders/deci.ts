import type { Architecture } from "../architecture.ts";
import { llamaLike } from "./llama.ts";

/**
 * Llama Nemotron's large models and DeciLM: Llama's decoder, of which a search has taken out halves of layers, attention's heads and
 * width. Source: "Puzzle" (arXiv 2411.19146).
 */
export const DECI: Architecture = llamaLike({ interleavedRope: true, headNorms: false }, {
  layersDiffer: true,
});
