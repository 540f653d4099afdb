import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, group, integer, real } from "../operands.ts";

const headColumns = group({ buffer: floats("read"), column: integer });

/**
 * out = softmax(scale q K) V over the rows of the step that are the sequence's, before and after the row's own: over all, or
 * those at most half of `window` away; 0 is no window. Sequences are whole in their step, and nothing is kept of them.
 */
export const TEXT_ATTENTION = opKind({
  op: "text_attention",
  code: 25,
  operands: {
    q: headColumns,
    k: headColumns,
    v: headColumns,
    out: floats("write"),
    heads: integer,
    kvHeads: integer,
    headDim: integer,
    scale: real,
    window: integer,
  },
  mixer: ({ window }) =>
    `attention ${window === 0 ? "in both directions" : `to ${window >> 1} tokens on both sides`}`,
  text: ({ q, k, v, out, heads, kvHeads, headDim, scale, window }, t) => {
    const [a, b, c] = [q, k, v].map((at) => t.buffer(at.buffer) + (at.column ? `+${at.column}` : ""));
    const what = `${heads}/${kvHeads} heads of ${headDim}, scale ${scale}` +
      (window ? `, window ${window}` : "");
    return `${t.buffer(out)} = text_attention(${a}, ${b}, ${c}; ${what})`;
  },
});

/** Heads that begin at a column of a value's rows. */
export interface HeadColumns {
  readonly value: Value;
  readonly column: number;
}

export interface TextHeads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** What the text's tokens, on both sides and at most half of `window` away, are worth to each of them. */
export function textAttention(
  b: PlanBuilder,
  [q, k, v]: readonly [HeadColumns, HeadColumns, HeadColumns],
  { heads, kvHeads, headDim }: TextHeads,
  scale: number,
  window = 0,
): Value {
  const out = b.floats("attn", q.value.rows, heads * headDim);
  const at = ({ value, column }: HeadColumns) => ({ buffer: b.asFloat(value), column });
  b.push({
    op: "text_attention",
    q: at(q),
    k: at(k),
    v: at(v),
    out: b.asFloat(out),
    heads,
    kvHeads,
    headDim,
    scale,
    window,
  });
  return out;
}
