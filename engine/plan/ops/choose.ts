import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, floats } from "../operands.ts";
import type { HeadShape } from "../values.ts";

/**
 * Chooses the positions that a row attends to (DeepSeek's lightning indexer). Position p scores the sum over heads of
 * weight * max(0, q . key of p). The row gets the positions with the largest scores, ascending; of equal scores, the
 * earlier position wins. A row with at most as many positions gets none and sees all.
 */
export const CHOOSE = opKind({
  op: "choose",
  code: 48,
  operands: {
    q: floats("read"),
    weights: floats("read"),
    heads: attentionHeads,
    out: floats("write"),
  },
  text: (op, t) => {
    const what = `layer ${op.heads.layer}, ${op.heads.heads} heads`;
    return `${t.buffer(op.out)} = choose(${t.buffers(op.q, op.weights)}; ${what})`;
  },
  context: ({ heads: { layer, heads, headDim } }) => ({
    operations: 2 * heads * headDim,
    cache: layer,
    window: undefined,
  }),
});

/** Returns the `count` positions that each row attends to. The heads read one KV head's keys. */
export function choose(b: PlanBuilder, q: Value, weights: Value, heads: HeadShape, count: number): Value {
  const out = b.floats("chosen", q.rows, count);
  b.push(CHOOSE, { q: b.asFloat(q), weights: b.asFloat(weights), heads, out: b.asFloat(out) });
  return out;
}
