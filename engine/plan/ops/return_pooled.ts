import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/** What a step gives back of each sequence that it pools: a row of floats. */
export const RETURN_POOLED = opKind({
  op: "return_pooled",
  code: 15,
  operands: { x: floats("read") },
  text: (op, t) => `return_pooled(${t.buffer(op.x)})`,
});

/** Gives pooled rows, or what was made of them, to whoever asked for the step. */
export function returnPooled(b: PlanBuilder, x: Value): void {
  b.push({ op: "return_pooled", x: b.asFloat(x) });
}
