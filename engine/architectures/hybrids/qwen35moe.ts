import { readExpertHparams, readSharedWidth } from "../../gguf/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { gate } from "../../plan/ops/gate.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { mixture } from "../parts/mixture.ts";
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
    sharedExpert(b, x, addTo, shared, name);
  };
}

function sharedExpert(b: PlanBuilder, x: Value, addTo: Value, width: number, name: TensorName): void {
  const inner = glu(b, x, name("ffn_gate_shexp"), name("ffn_up_shexp"), width);
  const [result] = linear(b, inner, [{ name: name("ffn_down_shexp"), rows: addTo.columns }]);
  const [weight] = linear(b, x, [{ name: name("ffn_gate_inp_shexp"), rows: 1 }]);
  gate(b, weight, result, { activation: "sigmoid", addTo });
}
