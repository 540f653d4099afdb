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

/** The name of a norm's weights without `.weight`, or `whole`. */
export type NormName = string | { readonly whole: string };

/**
 * Rows of x, normed and multiplied by `scale`; the norm has no weights where `name` is undefined. `rows` "logits" keeps only the
 * rows whose logits are wanted.
 */
export function rmsNorm(
  b: PlanBuilder,
  x: Value,
  name: NormName | undefined,
  eps: number,
  rows: BufferRows = x.rows,
  scale = 1,
): Value {
  const out = b.value("normed", rows, x.columns);
  const tensor = typeof name === "string" ? `${name}.weight` : name?.whole;
  const weight = tensor === undefined ? undefined : b.vector(tensor, x.columns);
  b.push({ op: "rms_norm", x: b.asFloat(x), weight, eps, scale, out: out.forms });
  return out;
}
