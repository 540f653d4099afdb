import { FORMATS } from "../../gguf/formats.ts";
import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, group, groups, integer, real } from "../operands.ts";

const headColumns = group({ buffer: floats("read"), column: integer, step: integer });

/**
 * Bidirectional attention: out = softmax(scale q K) V over the rows of the same sequence in this step: all rows, or
 * those at most half of `window` away; 0 is no window. If `rounds` is set, products use 16-bit integers. With `slopes`,
 * one per head, scores fall by the slope per token of distance. A step holds whole sequences, and nothing is cached.
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
    slopes: groups({ slope: real }),
  },
  mixer: ({ window }) =>
    `attention ${window === 0 ? "in both directions" : `to ${window >> 1} tokens on both sides`}`,
  context: ({ heads, headDim, window, rounds }) => ({
    operations: 4 * heads * headDim,
    float: !rounds,
    window: window === 0 ? undefined : window + 1,
  }),
  text: ({ q, k, v, out, heads, kvHeads, headDim, scale, window, rounds, slopes }, t) => {
    const [a, b, c] = [q, k, v].map((at) => t.buffer(at.buffer) + placeText(at, headDim));
    const what = `${heads}/${kvHeads} heads of ${headDim}, scale ${scale}` +
      (window ? `, window ${window}` : "") + (rounds ? ", in 16 bits" : "") +
      (slopes.length > 0 ? `, slopes ${slopes.map(({ slope }) => slope).join(" ")}` : "");
    return `${t.buffer(out)} = text_attention(${a}, ${b}, ${c}; ${what})`;
  },
});

/**
 * Returns the place of heads in a row, for printed plans: the first head's column, and the distance to the next head
 * unless adjacent.
 */
function placeText({ column, step }: { column: number; step: number }, headDim: number): string {
  return (column ? `+${column}` : "") + (step === headDim ? "" : `/${step}`);
}

/** Heads that begin at a column of a value's rows. */
export interface HeadColumns {
  readonly value: Value;
  readonly column: number;
  /** Number of columns from one head to the next; by default headDim. */
  readonly step?: number;
}

export interface TextHeads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /**
   * Name of the matrix that reads the result, without `.weight`. If it reads 8-bit blocks, wide heads use integer
   * products.
   */
  readonly reader: string;
}

/**
 * Minimum head width for integer products. Narrower heads gain only about 5 %, because each rounded value is reused
 * less.
 */
const ROUNDED_DIM = 64;

/** How far a row attends, and how its scores fall with distance. */
export interface TextAttentionOptions {
  /** Window in tokens, half on each side; 0 is none. */
  readonly window?: number;
  /** Decrease of each head's score per token of distance. */
  readonly slopes?: readonly number[];
}

/** Returns the bidirectional attention output over the text's tokens, at most half of `window` away. */
export function textAttention(
  b: PlanBuilder,
  [q, k, v]: readonly [HeadColumns, HeadColumns, HeadColumns],
  { heads, kvHeads, headDim, reader }: TextHeads,
  scale: number,
  { window = 0, slopes = [] }: TextAttentionOptions = {},
): Value {
  const out = b.floats("attn", q.value.rows, heads * headDim);
  const type = b.file.tensors.get(`${reader}.weight`)?.type;
  const rounds = headDim >= ROUNDED_DIM && !b.fine && type !== undefined && !FORMATS[type].float;
  const at = ({ value, column, step = headDim }: HeadColumns) => ({ buffer: b.asFloat(value), column, step });
  b.push(TEXT_ATTENTION, {
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
    slopes: slopes.map((slope) => ({ slope })),
  });
  return out;
}
