import type { Architecture } from "./architecture.ts";
import { llamaLike } from "./llama.ts";

/** Every so manieth layer has no positions. Files do not say it. */
const INTERVAL = 4;

/** SmolLM3: Llama's decoder, in which every fourth layer attends without positions ("RoPE to NoPE", arXiv 2501.18795). */
export const SMOLLM3: Architecture = llamaLike({
  interleavedRope: true,
  headNorms: false,
  hasPositions: (layer) => (layer + 1) % INTERVAL !== 0,
});
