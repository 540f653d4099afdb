import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * Qwen3's mixtures of experts: the dense decoder with experts in its feed-forward blocks. The chosen weights
 * are always divided by their sum: files do not have the checkpoint's `norm_topk_prob`, and llama.cpp does
 * the same. Source: "Qwen3" (arXiv 2505.09388).
 */
export const QWEN3MOE: Architecture = { allows: { experts: true }, build: buildQwen3Moe };

function buildQwen3Moe(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const experts = readExpertHparams(b.file, h);
  return buildLlama(b, h, rope, {
    interleavedRope: false,
    headNorms: true,
    feedForward: (x, addTo, name) => mixture(b, x, addTo, experts, name),
  });
}
