import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { forms, product } from "../operands.ts";

/** out = silu(gate x) * (up x). */
export const SWIGLU = opKind({
  op: "swiglu",
  code: 4,
  operands: { x: forms("read", 2), gate: product, up: product, out: forms("write", 2) },
  text: (op, t) => `${t.forms(op.out)} = swiglu(${t.tensors(op.gate, op.up)}) of ${t.forms(op.x)}`,
});

/** The gated half of a feed-forward layer, `rows` wide. */
export function swiglu(b: PlanBuilder, x: Value, gate: string, up: string, rows: number): Value {
  const out = b.value("ffn", x.rows, rows);
  const [g, u] = [gate, up].map((name) => b.operand(x, b.matrix(`${name}.weight`, x.columns, rows)));
  b.push({ op: "swiglu", x: { ...x.forms }, gate: g, up: u, out: out.forms });
  return out;
}
