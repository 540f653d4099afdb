import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, floats, integer, real } from "../operands.ts";
import type { HeadShape } from "../plan.ts";

/**
 * out = softmax(scale q K) V over the sequence's cache: of all positions up to the row's own, or of the last `window` of
 * them; 0 is no window.
 */
export const ATTENTION = opKind({
  op: "attention",
  code: 6,
  operands: { q: floats("read"), out: floats("write"), heads: attentionHeads, scale: real, window: integer },
  text: (op, t) => {
    const window = op.window === 0 ? "" : `, window ${op.window}`;
    return `${t.buffer(op.out)} = attention(${
      t.buffer(op.q)
    }; layer ${op.heads.layer}, scale ${op.scale}${window})`;
  },
  context: ({ heads: { layer, heads, headDim }, window }) => ({
    operations: 2 * 2 * heads * headDim, // two products of a head's width
    cache: layer,
    window: window || undefined,
  }),
});

/** What the sequence's tokens so far, or the last `window` of them, are worth to each of its rows. */
export function attention(b: PlanBuilder, q: Value, heads: HeadShape, scale: number, window = 0): Value {
  const out = b.floats("attn", q.rows, heads.heads * heads.headDim);
  b.push({ op: "attention", q: b.asFloat(q), out: b.asFloat(out), heads, scale, window });
  return out;
}
