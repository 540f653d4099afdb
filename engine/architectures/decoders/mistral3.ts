import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";

/**
 * Ministral 3 and its relatives: Llama's decoder with YaRN. Beyond the original context, queries grow with
 * the logarithm of their position divided by it. Source: Hugging Face transformers, models/ministral3.
 */
export const MISTRAL3: Architecture = {
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const beta = keys.scale("attention.temperature_scale", 0);
    const temperature = beta === 0 ? undefined : { beta, period: h.ropeOriginalContext };
    return buildLlama(b, h, rope, { interleavedRope: true, headNorms: false, temperature });
  },
};
