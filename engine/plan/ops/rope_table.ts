import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/** out = cos of position x frequency, then sin. */
export const ROPE_TABLE = opKind({
  op: "rope_table",
  code: 1,
  operands: { out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = rope_table()`,
});

/** The angles of each token's position, of `rotated` dimensions. */
export function ropeTable(b: PlanBuilder, rotated: number): Value {
  const out = b.floats("angles", "step", rotated);
  b.push({ op: "rope_table", out: b.asFloat(out) });
  return out;
}
