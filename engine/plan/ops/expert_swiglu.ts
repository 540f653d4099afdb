import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { chosenExperts, forms, product } from "../operands.ts";
import type { Chosen } from "../plan.ts";

/** For each expert e that a row x chose: out = silu(gate_e x) * (up_e x). */
export const EXPERT_SWIGLU = opKind({
  op: "expert_swiglu",
  code: 13,
  operands: {
    x: forms("read", 2),
    chosen: chosenExperts("read"),
    gate: product,
    up: product,
    out: forms("write", 2),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = expert_swiglu(${t.tensors(op.gate, op.up)}) of ${t.forms(op.x)} by ${
      t.buffer(op.chosen.buffer)
    }`,
});

/** The gated half of the experts' feed-forward layers, each `rows` wide: a row for each expert that a row of x chose. */
export function expertSwiglu(
  b: PlanBuilder,
  x: Value,
  chosen: Chosen,
  gate: string,
  up: string,
  rows: number,
): Value {
  const { count, used } = chosen;
  const out = b.value("ffn", { count, used }, rows);
  const [g, u] = [gate, up].map((name) => b.operand(x, b.experts(`${name}.weight`, x.columns, rows, count)));
  b.push({
    op: "expert_swiglu",
    x: { float: x.forms.float, quant: x.forms.quant },
    chosen,
    gate: g,
    up: u,
    out: out.forms,
  });
  return out;
}
