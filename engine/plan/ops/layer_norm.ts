import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, integer, optional, real, weights } from "../operands.ts";
import type { BufferRows } from "../values.ts";

/**
 * LayerNorm: out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, separately in each of `groups` parts of a
 * row. If the output holds logits rows, only those rows are read.
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
 * Returns x normed by mean and variance, with the file's `.bias` if any. If `rows` is "logits", returns only
 * the rows with logits. With several `groups`, each part of a row is normed separately and has its own row of
 * weights.
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
  b.push(LAYER_NORM, { x: b.asFloat(x), weight, bias, groups, eps, out: out.forms });
  return out;
}
