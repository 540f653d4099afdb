import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, optional, real, weights } from "../operands.ts";
import type { BufferRows } from "../plan.ts";

/**
 * out = scale * x / rms(x) * weight, or without a weight where there is none; with outputs of logit rows only those rows are
 * read.
 */
export const RMS_NORM = opKind({
  op: "rms_norm",
  code: 2,
  operands: {
    x: floats("read"),
    weight: optional(weights),
    eps: real,
    scale: real,
    out: forms("write", 3),
  },
  text: (op, t) => {
    const operands = [t.buffer(op.x), t.tensors(op.weight), `eps ${op.eps}`].filter(Boolean);
    if (op.scale !== 1) operands.push(`scale ${op.scale}`);
    return `${t.forms(op.out)} = rms_norm(${operands.join(", ")})`;
  },
});

/**
 * Rows of x, normed and multiplied by `scale`; `name` is the weight's, without `.weight`, and undefined for a norm without
 * weights. `rows` "logits" keeps only the rows whose logits are wanted.
 */
export function rmsNorm(
  b: PlanBuilder,
  x: Value,
  name: string | undefined,
  eps: number,
  rows: BufferRows = x.rows,
  scale = 1,
): Value {
  const out = b.value("normed", rows, x.columns);
  const weight = name === undefined ? undefined : b.vector(`${name}.weight`, x.columns);
  b.push({ op: "rms_norm", x: b.asFloat(x), weight, eps, scale, out: out.forms });
  return out;
}
