import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, optional, real, weights } from "../operands.ts";
import type { BufferRows } from "../values.ts";

/**
 * RMSNorm: out = scale * x / rms(x) * weight; the weight is optional. If the output holds logits rows, only those rows
 * are read.
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

/** The name of a norm's weights without `.weight`, or the `whole` name. */
export type NormName = string | { readonly whole: string };

/**
 * Returns x normed and multiplied by `scale`, without weights if `name` is undefined. If `rows` is "logits",
 * returns only the rows with logits.
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
  b.push(RMS_NORM, { x: b.asFloat(x), weight, eps, scale, out: out.forms });
  return out;
}
