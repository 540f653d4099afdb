import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { buildSigmoidExperts, readSigmoidExperts } from "./sigmoid_experts.ts";

/**
 * GLM-4.5 and 4.6, including Air: partial rotation; larger models norm their heads. Sources: "GLM-4.5" (arXiv
 * 2508.06471); Hugging Face transformers, models/glm4_moe.
 */
export const GLM4MOE: Architecture = {
  allows: { experts: true },
  build(b, h, rope) {
    refuseSections(ArchitectureKeys.of(b.file.metadata));
    return buildSigmoidExperts(b, h, rope, readSigmoidExperts(b.file, h), {
      interleavedRope: false,
      headNorms: b.file.tensors.has("blk.0.attn_q_norm.weight"),
      feedForwardNorm: "post_attention_norm",
    });
  },
};

/**
 * Refuses vision models: their rotated pairs take positions from time, height and width, and files order them
 * differently.
 */
function refuseSections(keys: ArchitectureKeys): void {
  const name = "rope.dimension_sections";
  const sections = Array.from(keys.metadata.getNumbers(keys.name(name)) ?? []);
  if (sections.some((section) => section !== 0)) keys.refuse(name, sections.join(", "), "left out");
}
