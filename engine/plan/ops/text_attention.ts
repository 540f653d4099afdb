import { FORMATS } from "../../gguf/formats.ts";
import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, group, integer, real } from "../operands.ts";

const headColumns = group({ buffer: floats("read"), column: integer });

/**
 * out = softmax(scale q K) V over the rows of the step that are the sequence's, before and after the row's own: over all, or
 * those at most half of `window` away; 0 is no window. If it `rounds`, products are of 16-bit integers. Sequences are whole in their
 * step, and nothing is kept of them.
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
    rounds: flag,
  },
  mixer: ({ window }) =>
    `attention ${window === 0 ? "in both directions" : `to ${window >> 1} tokens on both sides`}`,
  text: ({ q, k, v, out, heads, kvHeads, headDim, scale, window, rounds }, t) => {
    const [a, b, c] = [q, k, v].map((at) => t.buffer(at.buffer) + (at.column ? `+${at.column}` : ""));
    const what = `${heads}/${kvHeads} heads of ${headDim}, scale ${scale}` +
      (window ? `, window ${window}` : "") + (rounds ? ", in 16 bits" : "");
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
  /** The matrix that reads the result, without `.weight`: where it reads it in 8 bits, products of wide heads are of integers. */
  readonly reader: string;
}

/** The narrowest heads whose products are of integers: narrower ones gain a twentieth, as what is rounded is used less often. */
const ROUNDED_DIM = 64;

/** What the text's tokens, on both sides and at most half of `window` away, are worth to each of them. */
export function textAttention(
  b: PlanBuilder,
  [q, k, v]: readonly [HeadColumns, HeadColumns, HeadColumns],
  { heads, kvHeads, headDim, reader }: TextHeads,
  scale: number,
  window = 0,
): Value {
  const out = b.floats("attn", q.value.rows, heads * headDim);
  const type = b.file.tensors.get(`${reader}.weight`)?.type;
  const rounds = headDim >= ROUNDED_DIM && !b.fine && type !== undefined && !FORMATS[type].float;
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
    rounds,
  });
  return out;
}
