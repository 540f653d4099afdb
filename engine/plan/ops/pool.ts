import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer } from "../operands.ts";

/** How a sequence's rows become one: their mean, the first (`cls`), or the last. */
export const POOLINGS = ["mean", "cls", "last"] as const;
export type Pooling = typeof POOLINGS[number];

/**
 * One row of floats for each sequence whose pooled row a step wants; `way` is an index into POOLINGS. By mean or cls, all
 * rows that are pooled are in that step.
 */
export const POOL = opKind({
  op: "pool",
  code: 11,
  operands: { x: floats("read"), way: integer },
  text: (op, t) => `pool(${t.buffer(op.x)}; ${POOLINGS[op.way]})`,
});

/** Gives sequences' rows of x, pooled, back to whoever asked for the step. */
export function pool(b: PlanBuilder, x: Value, way: Pooling): void {
  b.push({ op: "pool", x: b.asFloat(x), way: POOLINGS.indexOf(way) });
}
