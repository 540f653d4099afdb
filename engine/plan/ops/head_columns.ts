import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer } from "../operands.ts";

/** Op: out = the heads of x with another number of columns each. Narrower heads lose their last columns; wider heads get zeros. */
export const HEAD_COLUMNS = opKind({
  op: "head_columns",
  code: 46,
  operands: { x: floats("read"), heads: integer, out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = head_columns(${t.buffer(op.x)}; ${op.heads} heads)`,
});

/** Returns x with heads of `columns` columns. */
export function headColumns(b: PlanBuilder, x: Value, heads: number, columns: number): Value {
  const out = b.floats("heads", x.rows, heads * columns);
  b.push(HEAD_COLUMNS, { x: b.asFloat(x), heads, out: b.asFloat(out) });
  return out;
}
