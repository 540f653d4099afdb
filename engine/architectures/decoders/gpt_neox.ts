/** GPT-NeoX and its descendants: LayerNorm with biases, and partial rotation. */
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama, type LlamaTraits } from "./llama.ts";

const NEOX: LlamaTraits = { interleavedRope: false, headNorms: false, layerNorms: true };

const firstLayerHas = ({ file }: PlanBuilder, tensor: string) => file.tensors.has(`blk.0.${tensor}.weight`);

/**
 * GPT-NeoX and Pythia: attention and feed-forward read the layer's input in parallel, each through its own
 * norm, or in sequence where the file says so. GELU is the tanh approximation, as in llama.cpp. Source:
 * "GPT-NeoX-20B" (arXiv 2204.06745).
 */
export const GPTNEOX: Architecture = {
  allows: { layerNorm: true },
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const parallel = b.file.metadata.getBoolean(keys.name("use_parallel_residual"));
    return buildLlama(b, h, rope, {
      ...NEOX,
      parallel: parallel && "normed apart",
      fused: true,
      ungated: "gelu",
    });
  },
};

/**
 * Phi-1, 1.5 and 2: attention and feed-forward read the same norm output in parallel. Files of the first
 * converters have q, k and v in one tensor. Source: Hugging Face transformers, models/phi.
 */
export const PHI2: Architecture = {
  allows: { layerNorm: true },
  build: (b, h, rope) =>
    buildLlama(b, h, rope, {
      ...NEOX,
      parallel: true,
      fused: firstLayerHas(b, "attn_qkv"),
      ungated: "gelu",
    }),
};

/**
 * StableLM 3B, StableLM 2 and Stable Code: SwiGLU after attention. In the 12B, attention and feed-forward
 * read one norm in parallel, and heads have norms. The 3B's files may claim "parallel" wrongly, by their
 * converter's default. Source: Hugging Face transformers, models/stablelm.
 */
export const STABLELM: Architecture = {
  allows: { layerNorm: true },
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const parallel = !firstLayerHas(b, "ffn_norm");
    const name = "use_parallel_residual";
    if (parallel && !b.file.metadata.getBoolean(keys.name(name), true)) {
      keys.refuse(name, "false", "true in a file without norms before the feed-forward halves");
    }
    return buildLlama(b, h, rope, { ...NEOX, parallel, headLayerNorms: firstLayerHas(b, "attn_q_norm") });
  },
};
