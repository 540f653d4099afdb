import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { activation, forms, optional, product, weights } from "../operands.ts";
import type { Activation } from "../values.ts";

/** Op: out = activation(weight x + bias). */
export const ACTIVATED = opKind({
  op: "activated",
  code: 17,
  operands: {
    x: forms("read", 2),
    weight: product,
    bias: optional(weights),
    activation,
    out: forms("write", 2),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = ${op.activation}(${t.affine(op.weight, op.bias)}) of ${t.forms(op.x)}`,
});

/** Adds a product with `rows` output columns, the file's bias if any, and an activation. */
export function activated(
  b: PlanBuilder,
  x: Value,
  name: string,
  rows: number,
  activation: Exclude<Activation, "swiglu_oai">,
): Value {
  const out = b.value("ffn", x.rows, rows);
  const weight = b.operand(x, b.matrix(`${name}.weight`, x.columns, rows));
  b.push(ACTIVATED, {
    x: b.blocksOf(x),
    weight,
    bias: b.bias(name, rows),
    activation,
    out: out.forms,
  });
  return out;
}
