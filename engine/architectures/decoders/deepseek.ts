import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import type { Rope } from "../parts/rope.ts";
import { countedWidth, feedForward, readWeighed, sharedMixture } from "../parts/shared_experts.ts";

/**
 * DeepSeekMoE, DeepSeek's first mixture of experts: Llama's decoder with experts after the leading dense
 * layers. The softmax over all experts weighs the chosen ones. Shared experts run as one wide expert.
 * Sources: "DeepSeekMoE" (arXiv 2401.06066); modeling_deepseek.py beside the checkpoints (deepseek-ai).
 */
export const DEEPSEEK: Architecture = { allows: { experts: true }, build: buildDeepseek };

function buildDeepseek(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const known = ["expert_shared_count", "expert_weights_scale"] as const;
  const chosen = readExpertHparams(b.file, h, "softmax over all", known);
  const experts = { ...chosen, shared: countedWidth(keys, chosen.feedForwardLength) };
  const denseLayers = keys.leadingDenseLayers(h.blockCount, 0);
  const weighed = readWeighed(keys);
  return buildLlama(b, h, rope, {
    interleavedRope: true,
    headNorms: false,
    feedForward(x, addTo, name, layer) {
      if (layer < denseLayers) return feedForward(b, x, h.feedForwardLength, name, { addTo });
      return sharedMixture(b, x, experts, name, { addTo }, weighed);
    },
  });
}
