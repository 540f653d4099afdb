import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * OLMoE: every layer has experts of the feed-forward key's width, weighed by the softmax over all. Queries
 * and keys are normed across their heads. Sources: "OLMoE" (arXiv 2409.02060); Hugging Face transformers,
 * models/olmoe.
 */
export const OLMOE: Architecture = { allows: { experts: true }, build: buildOlmoe };

function buildOlmoe(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  // A checkpoint may clamp queries, keys and values (`clip_qkv`), which compy does not compute.
  const bound = keys.metadata.getNumber(keys.name("attention.clamp_kqv"), 0);
  if (bound !== 0) keys.refuse("attention.clamp_kqv", String(bound), "0 in this architecture");
  const { count, used } = readExpertHparams(b.file, h, "softmax over all");
  const experts = { count, used, feedForwardLength: h.feedForwardLength };
  const divided = keys.metadata.getBoolean(keys.name("expert_weights_norm"), false);
  return buildLlama(b, h, rope, {
    interleavedRope: false,
    headNorms: false,
    rowNorms: true,
    feedForward: (x, addTo, name) => mixture(b, x, addTo, experts, name, { divided }),
  });
}
