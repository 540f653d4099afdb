/** GPT-NeoX and decoders that came of it: LayerNorm with biases, and a part of each head rotated. */
import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama, type LlamaTraits } from "./llama.ts";

const NEOX: LlamaTraits = { interleavedRope: false, headNorms: false, layerNorms: true };

const firstLayerHas = ({ file }: PlanBuilder, tensor: string) => file.tensors.has(`blk.0.${tensor}.weight`);

/**
 * GPT-NeoX and Pythia: both halves of a layer read its rows, each through a norm of its own, or as the file says one behind the other.
 * GELU is its formula with tanh, as in llama.cpp. Source: "GPT-NeoX-20B" (arXiv 2204.06745).
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
 * Phi-1, 1.5 and 2: both halves read what one norm makes of a layer's rows. The first converters left queries, keys and values in one
 * tensor. Source: Hugging Face transformers, models/phi.
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
 * StableLM 3B, StableLM 2 and Stable Code: SwiGLU behind attention; the 12B's halves are side by side on one norm, and its heads have a norm
 * each. Files of the 3B may say "parallel" all the same: their converter's default. Source: Hugging Face transformers, models/stablelm.
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
