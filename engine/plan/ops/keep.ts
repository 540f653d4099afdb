import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/**
 * Op that writes a draft's rows back to the place that `recall` read, so that the next draft can continue from them.
 */
export const KEEP = opKind({
  op: "keep",
  code: 32,
  operands: { x: floats("read"), to: floats("update") },
  text: (op, t) => `${t.buffer(op.to)} = keep(${t.buffer(op.x)})`,
});

/** Ends the plan's draft. `to` is the value with which the draft began. */
export function keep(b: PlanBuilder, x: Value, to: Value): void {
  b.push(KEEP, { x: b.asFloat(x), to: b.asFloat(to) });
}
