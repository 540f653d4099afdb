import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { buildGemma3, decoderAttention } from "./gemma3.ts";

/** Layer count of the 27B. */
const LARGEST = 46;
/** Defaults where the file has no keys. */
const SOFTCAPS = { scores: 50, logits: 30 };
const WINDOW = 4096;
const ROPE_BASE = 10_000;

/**
 * Gemma 2: Gemma 3's layers with one rotary table, no head norms, tanh-bounded attention scores, and a window
 * in every second layer. Sources: "Gemma 2" (arXiv 2408.00118); Hugging Face transformers, models/gemma2.
 */
export const GEMMA2: Architecture = {
  ending: (keys) => ({ logits: { softcap: keys.softcap("final_logit_softcapping") ?? SOFTCAPS.logits } }),
  build: (b, h, rope) => {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const softcap = keys.softcap("attn_logit_softcapping") ?? SOFTCAPS.scores;
    const attention = decoderAttention(LARGEST, { softcap });
    return buildGemma3(b, h, rope, {
      period: 2,
      window: WINDOW,
      nearBase: keys.ropeBase(ROPE_BASE),
      attention,
    });
  },
};
