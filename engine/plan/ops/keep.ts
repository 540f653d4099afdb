import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/** Puts a draft's rows where they were recalled from, so that another draft can go on from them. */
export const KEEP = opKind({
  op: "keep",
  code: 32,
  operands: { x: floats("read"), to: floats("update") },
  text: (op, t) => `${t.buffer(op.to)} = keep(${t.buffer(op.x)})`,
});

/** Ends the plan's draft: `to` is what it began with. */
export function keep(b: PlanBuilder, x: Value, to: Value): void {
  b.push({ op: "keep", x: b.asFloat(x), to: b.asFloat(to) });
}
