import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, group, integer, optional, real, weights } from "../operands.ts";

/** How a sequence's rows become one row: their mean, the first (`cls`), or the last. */
export const POOLINGS = ["mean", "cls", "last"] as const;
export type Pooling = typeof POOLINGS[number];

/**
 * Pooling: out = one float row for each sequence to pool: the mean, first or last of its rows of x, after an optional
 * norm. `way` is an index into POOLINGS. For mean and cls, the step holds all rows of the sequence.
 */
export const POOL = opKind({
  op: "pool",
  code: 11,
  operands: {
    x: floats("read"),
    norm: optional(group({ weight: weights, eps: real })),
    way: integer,
    out: floats("write"),
  },
  text: ({ x, norm, way, out }, t) => {
    const normed = norm ? `, ${t.tensor(norm.weight)}, eps ${norm.eps}` : "";
    return `${t.buffer(out)} = pool(${t.buffer(x)}${normed}; ${POOLINGS[way]})`;
  },
});

/** The RMSNorm to apply before pooling. */
export interface PoolNorm {
  readonly name: string;
  readonly eps: number;
}

/**
 * Returns the pooled rows of x for the sequences that the step pools. Without pooled sequences, nothing is
 * computed.
 */
export function pool(
  b: PlanBuilder,
  x: Value,
  way: Pooling,
  norm?: PoolNorm,
): Value {
  const out = b.floats("pooled", "pools", x.columns);
  b.push(POOL, {
    x: b.asFloat(x),
    norm: norm && { weight: b.vector(`${norm.name}.weight`, x.columns), eps: norm.eps },
    way: POOLINGS.indexOf(way),
    out: b.asFloat(out),
  });
  return out;
}
