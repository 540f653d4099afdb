import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * MiniMax M2: partial rotation, one norm over all query heads and one over all key heads. Every layer has
 * experts with sigmoid weights and a bias on the choice. Source: Hugging Face transformers,
 * models/minimax_m2.
 */
export const MINIMAX_M2: Architecture = { allows: { experts: true }, build: buildMinimaxM2 };

function buildMinimaxM2(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const experts = readExpertHparams(b.file, h, "sigmoid");
  return buildLlama(b, h, rope, {
    interleavedRope: false,
    headNorms: false,
    rowNorms: true,
    feedForward: (x, addTo, name) =>
      mixture(b, x, addTo, experts, name, { sigmoid: true, bias: name("exp_probs_b.bias") }),
  });
}
