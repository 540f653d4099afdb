import type { Architecture } from "../architecture.ts";
import { llamaLike } from "./llama.ts";

/**
 * Llama Nemotron's large models and DeciLM: Llama's decoder, pruned by a search that removed attention
 * blocks, feed-forward blocks, heads and width. Source: "Puzzle" (arXiv 2411.19146).
 */
export const DECI: Architecture = llamaLike({ interleavedRope: true, headNorms: false }, {
  layersDiffer: true,
});
