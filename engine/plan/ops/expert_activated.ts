import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { activation, chosenExperts, forms, optional, product, weights } from "../operands.ts";
import type { Activation, Chosen } from "../values.ts";

/** Op for each expert e that row x chose: out = activation(weight_e x + bias_e). */
export const EXPERT_ACTIVATED = opKind({
  op: "expert_activated",
  code: 33,
  operands: {
    x: forms("read", 2),
    chosen: chosenExperts("read"),
    weight: product,
    bias: optional(weights),
    activation,
    out: forms("write", 2),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = expert_${op.activation}(${t.affine(op.weight, op.bias)}) of ${t.forms(op.x)} by ${
      t.buffer(op.chosen.buffer)
    }`,
});

/**
 * Returns the activated hidden rows of ungated experts, `rows` columns wide, with the file's bias if any: one
 * row per expert that a row of x chose.
 */
export function expertActivated(
  b: PlanBuilder,
  x: Value,
  chosen: Chosen,
  name: string,
  rows: number,
  activation: Exclude<Activation, "swiglu_oai">,
): Value {
  const { count, used } = chosen;
  const out = b.value("ffn", { count, used }, rows);
  const weight = b.expertOperand(x, b.experts(`${name}.weight`, x.columns, rows, count));
  b.push(EXPERT_ACTIVATED, {
    x: { float: x.forms.float, quant: x.forms.quant },
    chosen,
    weight,
    bias: b.bias(name, rows, count),
    activation,
    out: out.forms,
  });
  return out;
}
