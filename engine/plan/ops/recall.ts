import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/**
 * Where a draft begins: the ops from here on run in drafts, and in no other step. out = for each row of the draft a row of x, which
 * the step before has left there.
 */
export const RECALL = opKind({
  op: "recall",
  code: 31,
  operands: { x: floats("read"), out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = recall(${t.buffer(op.x)})`,
});

/** Begins the plan's draft, with rows that the step before it has computed. */
export function recall(b: PlanBuilder, x: Value): Value {
  const out = b.floats("recalled", x.rows, x.columns);
  b.push({ op: "recall", x: b.asFloat(x), out: b.asFloat(out) });
  return out;
}
