import type { Hparams } from "../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { activated } from "../plan/ops/activated.ts";
import { embed } from "../plan/ops/embed.ts";
import { embedPositions } from "../plan/ops/embed_positions.ts";
import { glu } from "../plan/ops/glu.ts";
import { layerNorm } from "../plan/ops/layer_norm.ts";
import { linear } from "../plan/ops/matmul.ts";
import { ropeTable } from "../plan/ops/rope_table.ts";
import { rotate } from "../plan/ops/rotate.ts";
import { textAttention } from "../plan/ops/text_attention.ts";
import type { Architecture } from "./architecture.ts";
import { fusedHeads, hasFineValues, poolEncoder, separateHeads, tokenTypes } from "./encoder.ts";
import type { Rope } from "./rope.ts";

/** What tells BERT and its relatives apart. */
interface BertTraits {
  /** Learned positions; otherwise queries and keys are rotated. */
  readonly learned: boolean;
  /** The feed-forward half is SwiGLU; otherwise GELU, as llama.cpp has it, by its approximation with tanh. */
  readonly gated: boolean;
}

function bertLike(traits: BertTraits): Architecture {
  return {
    allows: { bothDirections: true, layerNorm: true },
    ending: () => ({ encoder: true }),
    pooling: "mean",
    build: (b, h, rope) => buildBert(b, h, rope, traits),
    pool: (b, x, h, pooling) => poolEncoder(b, x, h, pooling, { of: "cls", activation: "tanh" }),
  };
}

export const BERT = bertLike({ learned: true, gated: false });
export const NOMIC_BERT = bertLike({ learned: false, gated: true });

/**
 * BERT's encoder, whose norms come after each half of a layer, and with rotary positions and SwiGLU Nomic's. All tokens
 * are of the first type. Source: "BERT" (arXiv 1810.04805), "Nomic Embed" (2402.01613).
 */
function buildBert(b: PlanBuilder, h: Hparams, rope: Rope, { learned, gated }: BertTraits): Value {
  const eps = h.epsilon;
  const tokens = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  embedPositions(b, tokens, {
    positions: learned ? { name: "position_embd", count: h.contextLength } : undefined,
    types: tokenTypes(b),
  });
  let x = layerNorm(b, tokens, "token_embd_norm", eps);
  const table = learned ? undefined : ropeTable(b, rope.angles());
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const fused = b.file.tensors.has(`${name("attn_qkv")}.weight`);
    const [q, k, v] = (fused ? fusedHeads : separateHeads)(b, x, h, name, hasFineValues(layer));
    if (table) {
      for (const [at, heads] of [[q, h.headCount], [k, h.headCountKv]] as const) {
        rotate(b, at, heads, h.keyLength, { table, rotated: h.ropeDimensionCount });
      }
    }
    const heads = { heads: h.headCount, kvHeads: h.headCountKv, headDim: h.keyLength };
    const attn = textAttention(b, [q, k, v], heads, 1 / Math.sqrt(h.keyLength));
    linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo: x }]);
    const between = layerNorm(b, x, name("attn_output_norm"), eps);

    const ffn = gated
      ? glu(b, between, name("ffn_gate"), name("ffn_up"), h.feedForwardLength)
      : activated(b, between, name("ffn_up"), h.feedForwardLength, "gelu");
    linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo: between }]);
    x = layerNorm(b, between, name("layer_output_norm"), eps);
  }
  return x;
}
