import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, real, weights } from "../operands.ts";
import type { BufferRows } from "../plan.ts";

/** out = x / rms(x) * weight; with outputs of logit rows only those rows are read. */
export const RMS_NORM = opKind({
  op: "rms_norm",
  code: 2,
  operands: { x: floats("read"), weight: weights, eps: real, out: forms("write", 3) },
  text: (op, t) => `${t.forms(op.out)} = rms_norm(${t.buffer(op.x)}, ${t.tensor(op.weight)}, eps ${op.eps})`,
});

/** `rows` "logits" keeps only the rows whose logits are wanted. */
export function rmsNorm(
  b: PlanBuilder,
  x: Value,
  name: string,
  eps: number,
  rows: BufferRows = x.rows,
): Value {
  const out = b.value("normed", rows, x.columns);
  const weight = b.vector(`${name}.weight`, x.columns);
  b.push({ op: "rms_norm", x: b.asFloat(x), weight, eps, out: out.forms });
  return out;
}
