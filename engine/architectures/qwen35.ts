import { type DeltaHparams, readDeltaHparams } from "../gguf/delta_hparams.ts";
import type { Hparams } from "../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { attention } from "../plan/ops/attention.ts";
import { deltaRule } from "../plan/ops/delta_rule.ts";
import { embed } from "../plan/ops/embed.ts";
import { linear } from "../plan/ops/matmul.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import { ropeAppend } from "../plan/ops/rope_append.ts";
import { ropeTable } from "../plan/ops/rope_table.ts";
import { convolveHeads } from "../plan/ops/short_conv.ts";
import { glu } from "../plan/ops/glu.ts";
import { deltaState } from "../plan/plan.ts";
import type { Architecture, TensorName } from "./architecture.ts";
import type { Rope } from "./rope.ts";

/**
 * Qwen3.5 and 3.6: layers of Gated DeltaNet, and every fourth of full attention with an output gate. The file has the
 * value heads in the order that pairs head h with key head h % keyHeads, the decay as -e^A, and 1 added to the norms.
 * Sources: "Gated Delta Networks" (arXiv 2412.06464); Hugging Face transformers, models/qwen3_5.
 */
export const QWEN35: Architecture = {
  build: (b, h, rope) =>
    buildHybrid(b, h, rope, (x, addTo, name) => {
      const ffn = glu(b, x, name("ffn_gate"), name("ffn_up"), h.feedForwardLength);
      linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo }]);
    }),
};

/** What a layer's feed-forward half adds to `addTo`, of x, which is normed. */
type FeedForward = (x: Value, addTo: Value, name: TensorName) => void;

/** The hybrid's layers, with that second half. */
export function buildHybrid(b: PlanBuilder, h: Hparams, rope: Rope, feedForward: FeedForward): Value {
  const delta = readDeltaHparams(b.file, h);
  const eps = h.epsilon;
  b.leaveOut((name) => isDrafting(name, delta.layers));
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const table = ropeTable(b, rope.angles());
  for (let layer = 0; layer < delta.layers; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const mixIn = rmsNorm(b, x, name("attn_norm"), eps);
    if ((layer + 1) % delta.attentionInterval === 0) {
      const attn = gatedAttention(b, mixIn, h, table, name);
      linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo: x }]);
    } else {
      const mixed = gatedDeltaNet(b, mixIn, delta, eps, name);
      const out = { name: name("ssm_out"), rows: h.embeddingLength, fine: h.embeddingLength };
      linear(b, mixed, [{ ...out, addTo: x }]);
    }
    feedForward(rmsNorm(b, x, name("post_attention_norm"), eps), x, name);
  }
  return x;
}

function gatedAttention(b: PlanBuilder, x: Value, h: Hparams, table: Value, name: TensorName): Value {
  const heads = {
    layer: b.kvLayer({ heads: h.headCountKv, headDim: h.keyLength }),
    heads: h.headCount,
    kvHeads: h.headCountKv,
    headDim: h.keyLength,
    gated: true,
  };
  const qkv = linear(b, x, [
    { name: name("attn_q"), rows: 2 * h.headCount * h.keyLength }, // each head's query, then its gate
    { name: name("attn_k"), rows: h.headCountKv * h.keyLength },
    { name: name("attn_v"), rows: h.headCountKv * h.keyLength },
  ]);
  ropeAppend(b, qkv, heads, {
    table,
    rotated: h.ropeDimensionCount,
    interleaved: false,
    eps: h.epsilon,
    qNorm: name("attn_q_norm"),
    kNorm: name("attn_k_norm"),
  });
  return attention(b, qkv[0], heads, 1 / Math.sqrt(h.keyLength));
}

function gatedDeltaNet(b: PlanBuilder, x: Value, d: DeltaHparams, eps: number, name: TensorName): Value {
  const { keyHeads, valueHeads, headDim } = d;
  const heads = { layer: b.stateLayer(deltaState(d)), keyHeads, valueHeads, headDim };
  const [qkv, gate, alpha, beta] = linear(b, x, [
    { name: name("attn_qkv"), rows: (2 * keyHeads + valueHeads) * headDim, fine: 2 * keyHeads * headDim },
    { name: name("attn_gate"), rows: valueHeads * headDim },
    { name: name("ssm_alpha"), rows: valueHeads },
    { name: name("ssm_beta"), rows: valueHeads },
  ]);
  convolveHeads(b, qkv, name("ssm_conv1d"), heads, eps);
  const tensors = { decay: name("ssm_a"), bias: name("ssm_dt.bias"), norm: name("ssm_norm.weight") };
  return deltaRule(b, { qkv, gate, alpha, beta }, tensors, heads, eps);
}

/** Layers behind those that are computed draft tokens for another decoder to check. */
function isDrafting(tensor: string, layers: number): boolean {
  const block = /^blk\.(\d+)\./.exec(tensor);
  return block !== null && Number(block[1]) >= layers;
}
