import { readExpertHparams, readSharedWidth } from "../../gguf/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { mixture } from "../parts/mixture.ts";
import { gatedSharedExpert } from "../parts/shared_experts.ts";
import { buildHybrid, type FeedForward, hasDraftLayer } from "./qwen35.ts";

/**
 * Qwen3.5's hybrid with experts: beside those that a row chooses, one that all rows go through, behind the sigmoid of a gate
 * of its own. Source: Hugging Face transformers, models/qwen3_5_moe.
 */
export const QWEN35MOE: Architecture = {
  allows: { experts: true },
  hasDraftLayer,
  build: (b, h, rope) => buildHybrid(b, h, rope, hybridMixture(b, h)),
};

/** Experts that a row chooses and the one that all go through, as the file's keys have them. */
export function hybridMixture(b: PlanBuilder, h: Hparams): FeedForward {
  const experts = readExpertHparams(b.file, h);
  const shared = readSharedWidth(b.file, h);
  return (x, addTo, name) => {
    mixture(b, x, addTo, experts, name);
    gatedSharedExpert(b, x, addTo, shared, name);
  };
}
