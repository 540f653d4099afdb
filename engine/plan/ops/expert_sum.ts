import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { chosenExperts, flag, floats, forms, optional, product, weights } from "../operands.ts";
import type { Chosen } from "../values.ts";

/**
 * Op: out (+)= sum of p (weight_e x + bias_e) over the experts e that a row chose with weight p, in order of expert
 * number.
 */
export const EXPERT_SUM = opKind({
  op: "expert_sum",
  code: 14,
  operands: {
    chosen: chosenExperts("read"),
    x: forms("read", 2),
    weight: product,
    bias: optional(weights),
    out: floats("write"),
    /** Whether to add to the contents of `out`: a residual connection. */
    add: flag,
  },
  text: (op, t) =>
    `${t.buffer(op.out)} ${op.add ? "+=" : "="} expert_sum(${t.affine(op.weight, op.bias)}) of ${
      t.forms(op.x)
    } by ${t.buffer(op.chosen.buffer)}`,
});

/**
 * Adds up the experts' weighted outputs, with the file's bias if any: into the residual `to`, or as a new
 * value of `to` columns.
 */
export function expertSum(b: PlanBuilder, x: Value, chosen: Chosen, name: string, to: Value | number): Value {
  const [add, sum] = typeof to === "number" ? [false, b.floats("experts", "step", to)] : [true, to];
  const weight = b.expertOperand(x, b.experts(`${name}.weight`, x.columns, sum.columns, chosen.count));
  const bias = b.bias(name, sum.columns, chosen.count);
  b.push(EXPERT_SUM, {
    chosen,
    x: { ...x.forms },
    weight,
    bias,
    out: add ? b.update(sum) : b.asFloat(sum),
    add,
  });
  return sum;
}
