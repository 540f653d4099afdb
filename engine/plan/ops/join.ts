import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats } from "../operands.ts";

/** Op: out = each row of `first` followed by the same row of `second`. */
export const JOIN = opKind({
  op: "join",
  code: 30,
  operands: { first: floats("read"), second: floats("read"), out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = join(${t.buffers(op.first, op.second)})`,
});

/** Concatenates the rows of two values. */
export function join(b: PlanBuilder, first: Value, second: Value): Value {
  const out = b.floats("joined", first.rows, first.columns + second.columns);
  b.push(JOIN, { first: b.asFloat(first), second: b.asFloat(second), out: b.asFloat(out) });
  return out;
}
