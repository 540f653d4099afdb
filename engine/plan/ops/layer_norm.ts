import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, optional, real, weights } from "../operands.ts";

/** out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias. */
export const LAYER_NORM = opKind({
  op: "layer_norm",
  code: 22,
  operands: {
    x: floats("read"),
    weight: weights,
    bias: optional(weights),
    eps: real,
    out: forms("write", 3),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = layer_norm(${t.buffer(op.x)}, ${t.tensors(op.weight, op.bias)}, eps ${op.eps})`,
});

/** x normed by its mean and variance; `.bias` beside the weight is added where the file has one. */
export function layerNorm(b: PlanBuilder, x: Value, name: string, eps: number): Value {
  const out = b.value("normed", x.rows, x.columns);
  const weight = b.vector(`${name}.weight`, x.columns);
  const bias = b.file.tensors.has(`${name}.bias`) ? b.vector(`${name}.bias`, x.columns) : undefined;
  b.push({ op: "layer_norm", x: b.asFloat(x), weight, bias, eps, out: out.forms });
  return out;
}
