import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, integer } from "../operands.ts";

/**
 * out = every `count` consecutive rows of x as one row, or their mean if `averages` is set. The step's pools are these rows; a plan that merges pools in
 * no other way.
 */
export const MERGE = opKind({
  op: "merge",
  code: 43,
  operands: { x: floats("read"), count: integer, averages: flag, out: floats("write") },
  text: ({ x, count, averages, out }, t) =>
    `${t.buffer(out)} = merge(${t.buffer(x)}; ${averages ? "mean of " : ""}${count} rows)`,
});

/** Concatenates every `count` consecutive rows to one. */
export function merge(b: PlanBuilder, x: Value, count: number): Value {
  const out = b.floats("merged", "pools", count * x.columns);
  b.push(MERGE, { x: b.asFloat(x), count, averages: false, out: b.asFloat(out) });
  return out;
}

/** Averages every `count` consecutive rows. */
export function average(b: PlanBuilder, x: Value, count: number): Value {
  const out = b.floats("averaged", "pools", x.columns);
  b.push(MERGE, { x: b.asFloat(x), count, averages: true, out: b.asFloat(out) });
  return out;
}
