import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/**
 * Begins a draft: this op and the ops after it run only in drafts. The output is, for each row of the draft, a row of x
 * from the previous step.
 */
export const RECALL = opKind({
  op: "recall",
  code: 31,
  operands: { x: floats("read"), out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = recall(${t.buffer(op.x)})`,
});

/**
 * Begins the plan's draft with rows of the previous step. The draft's layers read the last `layers` layers of the KV
 * cache.
 */
export function recall(b: PlanBuilder, x: Value, layers = 1): Value {
  b.beginDraft(layers);
  const out = b.floats("recalled", x.rows, x.columns);
  b.push(RECALL, { x: b.asFloat(x), out: b.asFloat(out) });
  return out;
}
