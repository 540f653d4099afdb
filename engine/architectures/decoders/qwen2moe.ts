import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams, readSharedWidth } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";
import { gatedSharedExpert, readWeighed } from "../parts/shared_experts.ts";

/**
 * Qwen1.5-MoE and Qwen2's 57B-A14B: Qwen2's decoder with experts in every layer, weighed by the softmax over
 * all. A shared expert's output is scaled by a sigmoid gate. Source: Hugging Face transformers,
 * models/qwen2_moe.
 */
export const QWEN2MOE: Architecture = { allows: { experts: true }, build: buildQwen2Moe };

function buildQwen2Moe(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const experts = readExpertHparams(b.file, h, "softmax over all");
  const shared = readSharedWidth(b.file, h);
  const { divided } = readWeighed(keys);
  return buildLlama(b, h, rope, {
    interleavedRope: false,
    headNorms: false,
    feedForward(x, addTo, name) {
      mixture(b, x, addTo, experts, name, { divided });
      gatedSharedExpert(b, x, addTo, shared, name);
    },
  });
}
