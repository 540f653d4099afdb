import type { Architecture } from "../architecture.ts";
import { llamaLike } from "./llama.ts";

/** One layer in so many has no positions, the last of them. Files do not say it. */
const INTERVAL = 4;

/** SmolLM3: Llama's decoder, in which every fourth layer attends without positions ("RoPE to NoPE", arXiv 2501.18795). */
export const SMOLLM3: Architecture = llamaLike({
  interleavedRope: true,
  headNorms: false,
  hasPositions: (layer) => (layer + 1) % INTERVAL !== 0,
});
