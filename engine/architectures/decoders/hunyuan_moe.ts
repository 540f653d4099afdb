import { readExpertHparams, readSharedWidth } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import type { Rope } from "../parts/rope.ts";
import { sharedMixture } from "../parts/shared_experts.ts";

/**
 * Hunyuan-A13B: Hunyuan's dense decoder with experts in every layer, weighed by the softmax over the chosen
 * ones, and one shared expert. Converters fold the checkpoint's rotary scaling into the rotary base. Source:
 * Hugging Face transformers, models/hunyuan_v1_moe.
 */
export const HUNYUAN_MOE: Architecture = { allows: { experts: true }, build: buildHunyuanMoe };

function buildHunyuanMoe(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const chosen = readExpertHparams(b.file, h, "softmax", ["expert_shared_count"]);
  const experts = { ...chosen, shared: readSharedWidth(b.file, h) };
  return buildLlama(b, h, rope, {
    interleavedRope: false,
    headNorms: true,
    normsLast: true,
    feedForward: (x, addTo, name) => sharedMixture(b, x, experts, name, { addTo }, {}),
  });
}
