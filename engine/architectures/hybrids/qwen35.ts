import { type DeltaHparams, readDeltaHparams } from "../../gguf/hparams/delta_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { attention } from "../../plan/ops/attention.ts";
import { deltaRule } from "../../plan/ops/delta_rule.ts";
import { embed } from "../../plan/ops/embed.ts";
import { type Linear, linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeAppend } from "../../plan/ops/rope_append.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { convolveHeads } from "../../plan/ops/short_conv.ts";
import { glu } from "../../plan/ops/glu.ts";
import { type DeltaShape, deltaState, type HeadShape } from "../../plan/plan.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { addDraftLayer } from "../parts/draft_layer.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { placeImages } from "../parts/images.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * Qwen3.5 and 3.6: layers of Gated DeltaNet, and full attention with an output gate in every fourth layer. Value head h
 * reads key head h % keyHeads. The file stores the decay as -e^A, and norm weights with 1 added. Sources: "Gated Delta
 * Networks" (arXiv 2412.06464); Hugging Face transformers, models/qwen3_5.
 */
export const QWEN35: Architecture = {
  drafts: true,
  images: "grid",
  build: (b, h, rope) =>
    buildHybrid(b, h, rope, (x, addTo, name) => {
      const ffn = glu(b, x, name("ffn_gate"), name("ffn_up"), h.feedForwardLength);
      linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo }]);
    }),
};

/** Adds the feed-forward output of normed rows x to `addTo`. */
export type FeedForward = (x: Value, addTo: Value, name: TensorName) => void;

/** Order of the value heads that share a key head; by default the order of `QWEN35`. */
type HeadOrder = Pick<DeltaShape, "inGroups">;

/** Builds the layers of Qwen3.5's hybrid with the given feed-forward block. */
export function buildHybrid(
  b: PlanBuilder,
  h: Hparams,
  rope: Rope,
  feedForward: FeedForward,
  order: HeadOrder = {},
): Value {
  const delta = readDeltaHparams(b.file, h);
  const eps = h.epsilon;
  leaveOutDrafting(b, h);
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  placeImages(b, x);
  const table = ropeTable(b, rope.angles());
  for (let layer = 0; layer < delta.layers; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    handOut(b, x, layer);
    const mixIn = rmsNorm(b, x, name("attn_norm"), eps);
    if ((layer + 1) % delta.attentionInterval === 0) {
      gatedAttention(b, mixIn, x, h, table, name);
    } else {
      const mixed = gatedDeltaNet(b, mixIn, { ...delta, ...order }, eps, name);
      const out = { name: name("ssm_out"), rows: h.embeddingLength, fine: h.embeddingLength };
      linear(b, mixed, [{ ...out, addTo: x }]);
    }
    feedForward(rmsNorm(b, x, name("post_attention_norm"), eps), x, name);
  }
  handOut(b, x, delta.layers);
  if (b.drafts) {
    addDraftLayer(b, x, h, {
      keys(x, name) {
        const kept = linear(b, rmsNorm(b, x, name("attn_norm"), eps), keysAndValues(h, name));
        turnAndKeep(b, [undefined, ...kept], h, table, name);
      },
      layer(x, name) {
        gatedAttention(b, rmsNorm(b, x, name("attn_norm"), eps), x, h, table, name);
        feedForward(rmsNorm(b, x, name("post_attention_norm"), eps), x, name);
      },
    });
  }
  return x;
}

/** Returns the shape of gated heads with a new KV cache. */
function gatedHeads(b: PlanBuilder, h: Hparams): HeadShape {
  return {
    layer: b.kvLayer({ heads: h.headCountKv, headDim: h.keyLength }),
    heads: h.headCount,
    kvHeads: h.headCountKv,
    headDim: h.keyLength,
    gated: true,
  };
}

/** Adds the output of gated attention for normed rows x to `addTo`. */
function gatedAttention(
  b: PlanBuilder,
  x: Value,
  addTo: Value,
  h: Hparams,
  table: Value,
  name: TensorName,
): void {
  const qkv = linear(b, x, [
    { name: name("attn_q"), rows: 2 * h.headCount * h.keyLength }, // each head's query, then its gate
    ...keysAndValues(h, name),
  ]);
  const heads = turnAndKeep(b, qkv, h, table, name);
  const attn = attention(b, qkv[0], heads, 1 / Math.sqrt(h.keyLength));
  linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo }]);
}

function keysAndValues(h: Hparams, name: TensorName): Linear[] {
  return ["attn_k", "attn_v"].map((part) => ({ name: name(part), rows: h.headCountKv * h.keyLength }));
}

/** Rotates queries, if there are any, and keys, and appends keys and values to a new KV cache. */
function turnAndKeep(
  b: PlanBuilder,
  qkv: readonly (Value | undefined)[],
  h: Hparams,
  table: Value,
  name: TensorName,
): HeadShape {
  const heads = gatedHeads(b, h);
  ropeAppend(b, qkv, heads, {
    table,
    rotated: h.ropeDimensionCount,
    interleaved: false,
    eps: h.epsilon,
    qNorm: qkv[0] && name("attn_q_norm"),
    kNorm: name("attn_k_norm"),
  });
  return heads;
}

function gatedDeltaNet(
  b: PlanBuilder,
  x: Value,
  d: DeltaHparams & HeadOrder,
  eps: number,
  name: TensorName,
): Value {
  const { keyHeads, valueHeads, headDim, inGroups } = d;
  const heads = { layer: b.stateLayer(deltaState(d)), keyHeads, valueHeads, headDim, inGroups };
  const numbers = inGroups
    ? [{ name: name("ssm_ba"), rows: 2 * valueHeads }]
    : [{ name: name("ssm_alpha"), rows: valueHeads }, { name: name("ssm_beta"), rows: valueHeads }];
  const [qkv, gate, alpha, beta = alpha] = linear(b, x, [
    { name: name("attn_qkv"), rows: (2 * keyHeads + valueHeads) * headDim, fine: 2 * keyHeads * headDim },
    { name: name("attn_gate"), rows: valueHeads * headDim },
    ...numbers,
  ]);
  convolveHeads(b, qkv, name("ssm_conv1d"), heads, eps);
  const tensors = { decay: name("ssm_a"), bias: name("ssm_dt.bias"), norm: name("ssm_norm.weight") };
  return deltaRule(b, { qkv, gate, alpha, beta }, tensors, heads, eps);
}
