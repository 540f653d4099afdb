import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";
import { windowedSights } from "../parts/windows.ts";

/**
 * Mellum 2: Qwen3's mixture of experts with a window in three of four layers. Layers with a window do not use
 * YaRN. Source: Hugging Face transformers, models/mellum.
 */
export const MELLUM: Architecture = { allows: { experts: true }, build: buildMellum };

function buildMellum(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const experts = readExpertHparams(b.file, h);
  return buildLlama(b, h, rope, {
    interleavedRope: false,
    headNorms: true,
    sights: windowedSights(b, h, rope, "rope.scaling.yarn_attn_factor"),
    feedForward: (x, addTo, name) => mixture(b, x, addTo, experts, name),
  });
}
