import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, integer, optional, real, weights } from "../operands.ts";
import type { BufferRows } from "../plan.ts";

/**
 * out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, of each of `groups` parts of a row by itself; with outputs of
 * logit rows only those rows are read.
 */
export const LAYER_NORM = opKind({
  op: "layer_norm",
  code: 22,
  operands: {
    x: floats("read"),
    weight: weights,
    bias: optional(weights),
    groups: integer,
    eps: real,
    out: forms("write", 3),
  },
  text: (op, t) => {
    const operands = [t.buffer(op.x), t.tensors(op.weight, op.bias), `eps ${op.eps}`];
    if (op.groups > 1) operands.push(`${op.groups} groups`);
    return `${t.forms(op.out)} = layer_norm(${operands.join(", ")})`;
  },
});

/**
 * x normed by its mean and variance; `.bias` beside the weight is added where the file has one. `rows` "logits" keeps only the
 * rows whose logits are wanted. Of several `groups` each part of a row is normed by itself, and has a row of the weights.
 */
export function layerNorm(
  b: PlanBuilder,
  x: Value,
  name: string,
  eps: number,
  rows: BufferRows = x.rows,
  groups = 1,
): Value {
  const out = b.value("normed", rows, x.columns);
  const shape = groups === 1 ? [x.columns] : [x.columns / groups, groups];
  const [weight, bias] = [b.vector(`${name}.weight`, ...shape), b.bias(name, ...shape)];
  b.push({ op: "layer_norm", x: b.asFloat(x), weight, bias, groups, eps, out: out.forms });
  return out;
}
