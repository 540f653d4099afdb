import { readExpertHparams, readSharedWidth } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { mixture } from "../parts/mixture.ts";
import { gatedSharedExpert } from "../parts/shared_experts.ts";
import { buildHybrid, type FeedForward } from "./qwen35.ts";

/**
 * Qwen3.5's hybrid with experts and one shared expert. A sigmoid gate scales its output. Source: Hugging Face
 * transformers, models/qwen3_5_moe.
 */
export const QWEN35MOE: Architecture = {
  allows: { experts: true },
  drafts: true,
  images: "grid",
  build: (b, h, rope) => buildHybrid(b, h, rope, hybridMixture(b, h)),
};

/** Returns a feed-forward block of chosen experts and one gated shared expert, as the file's keys describe them. */
export function hybridMixture(b: PlanBuilder, h: Hparams): FeedForward {
  const experts = readExpertHparams(b.file, h);
  const shared = readSharedWidth(b.file, h);
  return (x, addTo, name) => {
    mixture(b, x, addTo, experts, name);
    gatedSharedExpert(b, x, addTo, shared, name);
  };
}
