import type { Architecture } from "../architecture.ts";
import { buildSigmoidExperts, readSigmoidExperts } from "./sigmoid_experts.ts";

/**
 * Ling 2.0 and Ring 2.0: fused q, k and v, norms of heads, partial rotation, and experts chosen within
 * groups. Source: modeling_bailing_moe_v2.py beside the checkpoints (inclusionAI).
 */
export const BAILINGMOE2: Architecture = {
  allows: { experts: true },
  build(b, h, rope) {
    const options = { sharedLength: "expert_shared_feed_forward_length", inGroups: true };
    return buildSigmoidExperts(b, h, rope, readSigmoidExperts(b.file, h, options), {
      interleavedRope: false,
      headNorms: true,
      fused: true,
    });
  },
};
