import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, floats, integer, optional, real, weights } from "../operands.ts";
import type { HeadShape } from "../plan.ts";

/**
 * out = softmax(scale q K) V over the sequence's cache: of all positions up to the row's own, or of the last `window` of
 * them; 0 is no window. A head's sink is one more score in its softmax, which has no value: it only takes weight. Where there is a
 * softcap, not 0, scores are softcap tanh(score / softcap).
 */
export const ATTENTION = opKind({
  op: "attention",
  code: 6,
  operands: {
    q: floats("read"),
    out: floats("write"),
    heads: attentionHeads,
    scale: real,
    window: integer,
    sinks: optional(weights),
    softcap: real,
  },
  text: (op, t) => {
    const window = op.window === 0 ? "" : `, window ${op.window}`;
    const sinks = op.sinks === undefined ? "" : `, sinks ${t.tensor(op.sinks)}`;
    const softcap = op.softcap === 0 ? "" : `, softcap ${op.softcap}`;
    return `${t.buffer(op.out)} = attention(${
      t.buffer(op.q)
    }; layer ${op.heads.layer}, scale ${op.scale}${window}${sinks}${softcap})`;
  },
  mixer: ({ window }) => window === 0 ? "attention" : `attention to ${window} tokens`,
  context: ({ heads: { layer, heads, headDim }, window }) => ({
    operations: 2 * 2 * heads * headDim, // two products of a head's width
    cache: layer,
    window: window || undefined,
  }),
});

export interface AttentionOptions {
  /** Tokens that a row sees, its own among them; by default all. */
  readonly window?: number;
  /** The whole name of a vector of a score a head. */
  readonly sinks?: string;
  /** The bound that tanh keeps scores in; by default none. */
  readonly softcap?: number;
}

/** What the sequence's tokens so far, or those of a window, are worth to each of its rows. */
export function attention(
  b: PlanBuilder,
  q: Value,
  heads: HeadShape,
  scale: number,
  { window = 0, sinks: name, softcap = 0 }: AttentionOptions = {},
): Value {
  const out = b.floats("attn", q.rows, heads.heads * heads.headDim);
  const sinks = name === undefined ? undefined : b.vector(name, heads.heads);
  b.push({ op: "attention", q: b.asFloat(q), out: b.asFloat(out), heads, scale, window, sinks, softcap });
  return out;
}
