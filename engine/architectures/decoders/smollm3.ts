import type { Architecture } from "../architecture.ts";
import { llamaLike } from "./llama.ts";

/** Layers per period. The last layer of a period has no positions; files do not say so. */
const INTERVAL = 4;

/** SmolLM3: Llama's decoder without positions in every fourth layer ("RoPE to NoPE", arXiv 2501.18795). */
export const SMOLLM3: Architecture = llamaLike({
  interleavedRope: true,
  headNorms: false,
  hasPositions: (layer) => (layer + 1) % INTERVAL !== 0,
});
