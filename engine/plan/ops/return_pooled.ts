import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/** Op that returns one float row per pooled sequence from the step. */
export const RETURN_POOLED = opKind({
  op: "return_pooled",
  code: 15,
  operands: { x: floats("read") },
  text: (op, t) => `return_pooled(${t.buffer(op.x)})`,
});

/** Returns pooled rows, or rows computed from them, to the step's caller. */
export function returnPooled(b: PlanBuilder, x: Value): void {
  b.push(RETURN_POOLED, { x: b.asFloat(x) });
}
