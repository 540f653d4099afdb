import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, integer } from "../operands.ts";
import type { Chosen } from "../values.ts";

/** Op: out = columns of x, starting at `first`. */
export const COLUMNS = opKind({
  op: "columns",
  code: 34,
  operands: { x: floats("read"), first: integer, out: forms("write", 3) },
  text: (op, t) => `${t.forms(op.out)} = columns(${t.buffer(op.x)} from column ${op.first})`,
});

/** Returns a range of x's columns as a new value. */
export function columns(
  b: PlanBuilder,
  x: Value,
  { first, columns }: { readonly first: number; readonly columns: number },
): Value {
  const out = b.value("columns", x.rows, columns);
  b.push(COLUMNS, { x: b.asFloat(x), first, out: out.forms });
  return out;
}

/** Returns the weights of each row's chosen experts, a column per expert. */
export function chosenWeights(b: PlanBuilder, { buffer, used }: Chosen): Value {
  const out = b.floats("weights", "step", used);
  b.push(COLUMNS, { x: buffer, first: used, out: out.forms });
  return out;
}
