import { type ExpertHparams, readExpertHparams } from "../gguf/expert_hparams.ts";
import type { Hparams } from "../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { expertSum } from "../plan/ops/expert_sum.ts";
import { expertSwiglu } from "../plan/ops/expert_swiglu.ts";
import { linear } from "../plan/ops/matmul.ts";
import { route } from "../plan/ops/route.ts";
import type { Architecture } from "./architecture.ts";
import { buildLlama, type TensorName } from "./llama.ts";
import type { Rope } from "./rope.ts";

/**
 * Qwen3's mixtures of experts: the dense decoder with other feed-forward halves. The weights of the chosen experts are
 * divided by their sum, whatever the checkpoint's `norm_topk_prob` was: files do not say it, and llama.cpp does so.
 * Source: "Qwen3" (arXiv 2505.09388).
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

/** Each row goes through the experts that its router chooses. */
function mixture(b: PlanBuilder, x: Value, addTo: Value, e: ExpertHparams, name: TensorName): void {
  // A choice hangs on small differences: a router in blocks reads x in two planes.
  const [logits] = linear(b, x, [{ name: name("ffn_gate_inp"), rows: e.count, fine: e.count }]);
  const chosen = route(b, logits, { used: e.used });
  const gates = [name("ffn_gate_exps"), name("ffn_up_exps")] as const;
  const ffn = expertSwiglu(b, x, chosen, ...gates, e.feedForwardLength);
  expertSum(b, ffn, chosen, name("ffn_down_exps"), addTo);
}
