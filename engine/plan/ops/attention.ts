import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, floats, real } from "../operands.ts";
import type { HeadShape } from "../plan.ts";

/** out = softmax(scale q K) V over the sequence's cache. */
export const ATTENTION = opKind({
  op: "attention",
  code: 6,
  operands: { q: floats("read"), out: floats("write"), heads: attentionHeads, scale: real },
  text: (op, t) =>
    `${t.buffer(op.out)} = attention(${t.buffer(op.q)}; layer ${op.heads.layer}, scale ${op.scale})`,
  // Two products of a head's width.
  contextOperations: ({ heads: { heads, headDim } }) => 2 * 2 * heads * headDim,
});

/** What the sequence's tokens so far are worth to each of its rows. */
export function attention(b: PlanBuilder, q: Value, heads: HeadShape, scale: number): Value {
  const out = b.floats("attn", q.rows, heads.heads * heads.headDim);
  b.push({ op: "attention", q: b.asFloat(q), out: b.asFloat(out), heads, scale });
  return out;
}
