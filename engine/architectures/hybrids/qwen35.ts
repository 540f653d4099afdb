import { type DeltaHparams, readDeltaHparams } from "../../gguf/hparams/delta_hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { attention } from "../../plan/ops/attention.ts";
import { candidates } from "../../plan/ops/candidates.ts";
import { deltaRule } from "../../plan/ops/delta_rule.ts";
import { embed } from "../../plan/ops/embed.ts";
import { join } from "../../plan/ops/join.ts";
import { keep } from "../../plan/ops/keep.ts";
import { type Linear, linear } from "../../plan/ops/matmul.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeAppend } from "../../plan/ops/rope_append.ts";
import { ropeTableOf } from "../../plan/ops/rope_table.ts";
import { shift } from "../../plan/ops/shift.ts";
import { convolveHeads } from "../../plan/ops/short_conv.ts";
import { glu } from "../../plan/ops/glu.ts";
import { type DeltaShape, deltaState, type HeadShape } from "../../plan/plan.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { isDrafting } from "../left_out.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * Qwen3.5 and 3.6: layers of Gated DeltaNet, and full attention with an output gate in every fourth layer.
 * The file orders value heads so that head h reads key head h % keyHeads. The file stores the decay as -e^A, and norm
 * weights with 1 added. Sources: "Gated Delta Networks" (arXiv 2412.06464); Hugging Face transformers,
 * models/qwen3_5.
 */
export const QWEN35: Architecture = {
  hasDraftLayer,
  build: (b, h, rope) =>
    buildHybrid(b, h, rope, (x, addTo, name) => {
      const ffn = glu(b, x, name("ffn_gate"), name("ffn_up"), h.feedForwardLength);
      linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo }]);
    }),
};

/** Adds the feed-forward output of normed rows x to `addTo`. */
export type FeedForward = (x: Value, addTo: Value, name: TensorName) => void;

/** Order of the value heads that share a key head; by default `QWEN35`'s order. */
type HeadOrder = Pick<DeltaShape, "inGroups">;

/** Builds the hybrid's layers with that feed-forward block. */
export function buildHybrid(
  b: PlanBuilder,
  h: Hparams,
  rope: Rope,
  feedForward: FeedForward,
  order: HeadOrder = {},
): Value {
  const delta = readDeltaHparams(b.file, h);
  const eps = h.epsilon;
  b.leaveOut((name) => isDrafting(name, delta.layers + (b.drafts ? 1 : 0)));
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const angles = rope.angles();
  const turn: Turn = { table: b.ropeTable(angles), pairs: angles.frequencies.length };
  const table = ropeTableOf(b, turn.table, turn.pairs);
  for (let layer = 0; layer < delta.layers; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const mixIn = rmsNorm(b, x, name("attn_norm"), eps);
    if ((layer + 1) % delta.attentionInterval === 0) {
      gatedAttention(b, mixIn, x, h, gatedHeads(b, h), table, name);
    } else {
      const mixed = gatedDeltaNet(b, mixIn, { ...delta, ...order }, eps, name);
      const out = { name: name("ssm_out"), rows: h.embeddingLength, fine: h.embeddingLength };
      linear(b, mixed, [{ ...out, addTo: x }]);
    }
    feedForward(rmsNorm(b, x, name("post_attention_norm"), eps), x, name);
  }
  if (b.drafts) draftLayer(b, x, h, { turn, table, layer: delta.layers }, feedForward);
  return x;
}

/** One of the plan's rotary tables. */
interface Turn {
  readonly table: number;
  readonly pairs: number;
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

/** Adds the attention output of normed rows x to `addTo`. */
function gatedAttention(
  b: PlanBuilder,
  x: Value,
  addTo: Value,
  h: Hparams,
  heads: HeadShape,
  table: Value,
  name: TensorName,
): void {
  const qkv = linear(b, x, [
    { name: name("attn_q"), rows: 2 * h.headCount * h.keyLength }, // each head's query, then its gate
    ...keysAndValues(h, name),
  ]);
  turnAndKeep(b, qkv, h, heads, table, name);
  const attn = attention(b, qkv[0], heads, 1 / Math.sqrt(h.keyLength));
  linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo }]);
}

function keysAndValues(h: Hparams, name: TensorName): Linear[] {
  return ["attn_k", "attn_v"].map((part) => ({ name: name(part), rows: h.headCountKv * h.keyLength }));
}

/** Rotates queries and keys, and appends keys and values to the KV cache; without queries only the latter. */
function turnAndKeep(
  b: PlanBuilder,
  qkv: readonly (Value | undefined)[],
  h: Hparams,
  heads: HeadShape,
  table: Value,
  name: TensorName,
): void {
  ropeAppend(b, qkv, heads, {
    table,
    rotated: h.ropeDimensionCount,
    interleaved: false,
    eps: h.epsilon,
    qNorm: qkv[0] && name("attn_q_norm"),
    kNorm: name("attn_k_norm"),
  });
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

/**
 * Builds the extra layer that drafts. From a token and the previous row after the output norm, it computes a
 * row that predicts the token after next. Every step appends keys and values of all its tokens to this
 * layer's cache.
 * A draft continues from a row of the previous step, or of the previous draft. The first token has zeros as
 * previous row.
 * Sources: "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 2.2. The choice of the previous row,
 * and the pairing of tokens and positions, follow llama.cpp (qwen35).
 */
function draftLayer(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  { turn, table, layer }: { turn: Turn; table: Value; layer: number },
  feedForward: FeedForward,
): void {
  const name = (tensor: string) => `blk.${layer}.${tensor}`;
  const own = (tensor: string, otherwise: string) =>
    b.file.tensors.has(`${name(tensor)}.weight`) ? name(tensor) : otherwise;
  const [width, eps, heads] = [h.embeddingLength, h.epsilon, gatedHeads(b, h)];
  const hidden = rmsNorm(b, rmsNorm(b, x, "output_norm", eps), name("nextn.hnorm"), eps);
  const begin = (before: Value) => {
    const token = embed(b, own("nextn.embed_tokens", "token_embd"), h.vocabSize, width);
    const both = join(b, rmsNorm(b, token, name("nextn.enorm"), eps), before);
    const [row] = linear(b, both, [{ name: name("nextn.eh_proj"), rows: width }]);
    return { row, mixIn: rmsNorm(b, row, name("attn_norm"), eps) };
  };
  const kept = linear(b, begin(shift(b, hidden)).mixIn, keysAndValues(h, name));
  turnAndKeep(b, [undefined, ...kept], h, heads, table, name);
  b.atEnd(() => {
    const { row, mixIn } = begin(recall(b, hidden));
    gatedAttention(b, mixIn, row, h, heads, ropeTableOf(b, turn.table, turn.pairs), name);
    feedForward(rmsNorm(b, row, name("post_attention_norm"), eps), row, name);
    const norm = own("nextn.shared_head_norm", "output_norm");
    const output = b.file.tensors.has("output.weight") ? "output" : "token_embd";
    candidates(
      b,
      rmsNorm(b, row, norm, eps, "logits"),
      h.vocabSize,
      {},
      own("nextn.shared_head_head", output),
    );
    keep(b, rmsNorm(b, rmsNorm(b, row, norm, eps), name("nextn.hnorm"), eps), hidden);
  });
}

/** A file needs all these tensors to have a layer that drafts. */
const DRAFT_TENSORS = [
  "nextn.eh_proj",
  "nextn.enorm",
  "nextn.hnorm",
  "attn_norm",
  "attn_q",
  "attn_k",
  "attn_v",
];

export function hasDraftLayer(file: GgufFile, h: Hparams): boolean {
  const { layers } = readDeltaHparams(file, h);
  return layers < h.blockCount &&
    DRAFT_TENSORS.every((tensor) => file.tensors.has(`blk.${layers}.${tensor}.weight`));
}
