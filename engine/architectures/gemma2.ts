import { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import type { Hparams } from "../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { linear } from "../plan/ops/matmul.ts";
import type { Architecture, TensorName } from "./architecture.ts";
import { buildGemma3, type Seen } from "./gemma3.ts";
import { groupedAttention } from "./grouped_attention.ts";

/** Layers of the 27B, whose queries are scaled by the width that a head has of the embedding. */
const LARGEST = 46;
/** Where the file does not say. */
const SOFTCAPS = { scores: 50, logits: 30 };
const WINDOW = 4096;
const ROPE_BASE = 10_000;

/**
 * Gemma 2: Gemma 3's layers with one kind of rotary positions, no norms of heads, scores of attention that tanh bounds, and a window in every
 * second layer. Sources: "Gemma 2" (arXiv 2408.00118); Hugging Face transformers, models/gemma2.
 */
export const GEMMA2: Architecture = {
  ending: (keys) => ({ logits: { softcap: keys.softcap("final_logit_softcapping") ?? SOFTCAPS.logits } }),
  build: (b, h, rope) => {
    const nearBase = ArchitectureKeys.of(b.file.metadata).ropeBase(ROPE_BASE);
    return buildGemma3(b, h, rope, { period: 2, window: WINDOW, nearBase, attention: attentionHalf });
  },
};

function attentionHalf(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  { table, window }: Seen,
  name: TensorName,
): Value {
  const { headCount: heads, headCountKv: kvHeads, keyLength: headDim } = h;
  const width = h.blockCount === LARGEST ? Math.floor(h.embeddingLength / heads) : headDim;
  const attn = groupedAttention(b, x, {
    heads,
    kvHeads,
    headDim,
    table,
    rotated: h.ropeDimensionCount,
    eps: h.epsilon,
    scale: 1 / Math.sqrt(width),
    window,
    softcap: ArchitectureKeys.of(b.file.metadata).softcap("attn_logit_softcapping") ?? SOFTCAPS.scores,
  }, name);
  return linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength }])[0];
}
