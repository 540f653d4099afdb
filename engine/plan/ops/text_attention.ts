import { FORMATS } from "../../gguf/formats.ts";
import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, group, groups, integer, real } from "../operands.ts";

const headColumns = group({ buffer: floats("read"), column: integer, step: integer });

/**
 * out = softmax(scale q K) V over the rows of the step that are the sequence's, before and after the row's own: over all, or
 * those at most half of `window` away; 0 is no window. If it `rounds`, products are of 16-bit integers. With `slopes`, one a head,
 * scores lose so much for each token in between. Sequences are whole in their step, and nothing is kept of them.
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
  text: ({ q, k, v, out, heads, kvHeads, headDim, scale, window, rounds, slopes }, t) => {
    const [a, b, c] = [q, k, v].map((at) => t.buffer(at.buffer) + placeText(at, headDim));
    const what = `${heads}/${kvHeads} heads of ${headDim}, scale ${scale}` +
      (window ? `, window ${window}` : "") + (rounds ? ", in 16 bits" : "") +
      (slopes.length > 0 ? `, slopes ${slopes.map(({ slope }) => slope).join(" ")}` : "");
    return `${t.buffer(out)} = text_attention(${a}, ${b}, ${c}; ${what})`;
  },
});

/** Where heads lie in a row, for readers: the first one's column, and how many columns the next is away where others lie between. */
function placeText({ column, step }: { column: number; step: number }, headDim: number): string {
  return (column ? `+${column}` : "") + (step === headDim ? "" : `/${step}`);
}

/** Heads that begin at a column of a value's rows. */
export interface HeadColumns {
  readonly value: Value;
  readonly column: number;
  /** Columns from a head to the next; by default a head's own. */
  readonly step?: number;
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

/** What a row sees, and how its scores fall with the distance. */
export interface TextSight {
  /** Tokens, half of them on each side; 0 is all. */
  readonly window?: number;
  /** What each head's scores lose for each token between a row and what it sees. */
  readonly slopes?: readonly number[];
}

/** What the text's tokens, on both sides and at most half of `window` away, are worth to each of them. */
export function textAttention(
  b: PlanBuilder,
  [q, k, v]: readonly [HeadColumns, HeadColumns, HeadColumns],
  { heads, kvHeads, headDim, reader }: TextHeads,
  scale: number,
  { window = 0, slopes = [] }: TextSight = {},
): Value {
  const out = b.floats("attn", q.value.rows, heads * headDim);
  const type = b.file.tensors.get(`${reader}.weight`)?.type;
  const rounds = headDim >= ROUNDED_DIM && !b.fine && type !== undefined && !FORMATS[type].float;
  const at = ({ value, column, step = headDim }: HeadColumns) => ({ buffer: b.asFloat(value), column, step });
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
    slopes: slopes.map((slope) => ({ slope })),
  });
  return out;
}
