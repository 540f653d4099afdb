import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { addGraniteMixture, readGraniteExperts } from "../parts/granite_experts.ts";
import { buildLlama } from "./llama.ts";

/**
 * Granite 3 and 4's dense models: Llama's decoder with multipliers on the embedding, on what layers add, on attention's scores,
 * and a divisor of the logits. Source: Hugging Face transformers, models/granite.
 */
export const GRANITE: Architecture = {
  ending: (keys) => ({ logits: { scale: 1 / keys.scale("logit_scale", 1) } }),
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    // llama.cpp's switch for models without positions.
    const hasPositions = b.file.metadata.getBoolean(keys.name("rope.scaling.finetuned"), true);
    const residual = keys.scale("residual_scale", 1);
    const experts = readGraniteExperts(b.file, h, keys);
    return buildLlama(b, h, rope, {
      interleavedRope: true,
      headNorms: false,
      hasPositions: () => hasPositions,
      scales: {
        embedding: keys.scale("embedding_scale", 1),
        residual,
        attention: keys.scale("attention.scale", 1 / Math.sqrt(h.keyLength)),
      },
      feedForward: experts &&
        ((x, addTo, name) => addGraniteMixture(b, x, experts, name, { addTo, times: residual })),
    });
  },
};

/** Granite 3's mixtures of experts: the same, in which each layer's feed-forward half is one. */
export const GRANITEMOE: Architecture = { ...GRANITE, allows: { experts: true } };
