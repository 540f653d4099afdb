import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, group, integer, optional, real, weights } from "../operands.ts";

/** How a sequence's rows become one: their mean, the first (`cls`), or the last. */
export const POOLINGS = ["mean", "cls", "last"] as const;
export type Pooling = typeof POOLINGS[number];

/**
 * out = one row of floats for each sequence whose pooled row a step wants: the mean, the first or the last of its rows of x,
 * each of them normed first where there is a norm. `way` is an index into POOLINGS. By mean or cls, all rows that are pooled
 * are in that step.
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

/** The RMSNorm before pooling. */
export interface PoolNorm {
  readonly name: string;
  readonly eps: number;
}

/** Sequences' rows of x, pooled: only of those for which a step wants that. Without any, nothing is computed. */
export function pool(
  b: PlanBuilder,
  x: Value,
  way: Pooling,
  norm?: PoolNorm,
): Value {
  const out = b.floats("pooled", "pools", x.columns);
  b.push({
    op: "pool",
    x: b.asFloat(x),
    norm: norm && { weight: b.vector(`${norm.name}.weight`, x.columns), eps: norm.eps },
    way: POOLINGS.indexOf(way),
    out: b.asFloat(out),
  });
  return out;
}
