import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer } from "../operands.ts";

/**
 * out = every `count` consecutive rows of x as one row. The step's pools are these rows; a plan that merges pools in
 * no other way.
 */
export const MERGE = opKind({
  op: "merge",
  code: 43,
  operands: { x: floats("read"), count: integer, out: floats("write") },
  text: ({ x, count, out }, t) => `${t.buffer(out)} = merge(${t.buffer(x)}; ${count} rows)`,
});

/** Concatenates every `count` consecutive rows to one. */
export function merge(b: PlanBuilder, x: Value, count: number): Value {
  const out = b.floats("merged", "pools", count * x.columns);
  b.push(MERGE, { x: b.asFloat(x), count, out: b.asFloat(out) });
  return out;
}
