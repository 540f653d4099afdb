import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer, optional, real, weights } from "../operands.ts";
import type { NormName } from "./rms_norm.ts";

/**
 * Residual addition of normed rows: to = (to + scale * x / rms(x) * weight) * layerScale. Each `group` of columns is
 * normed separately, with the same weights.
 */
export const POST_NORM = opKind({
  op: "post_norm",
  code: 19,
  operands: {
    x: floats("read"),
    weight: optional(weights),
    group: integer,
    eps: real,
    scale: real,
    /** Tensor of one number that scales the sum. */
    layerScale: optional(weights),
    to: floats("update"),
  },
  text: (op, t) => {
    const operands = [t.buffer(op.x), t.tensors(op.weight), `eps ${op.eps}`].filter(Boolean);
    if (op.scale !== 1) operands.push(`scale ${op.scale}`);
    operands.push(`groups of ${op.group}`);
    const after = op.layerScale === undefined ? "" : `, then times ${t.tensor(op.layerScale)}`;
    return `${t.buffer(op.to)} += post_norm(${operands.join(", ")})${after}`;
  },
});

export interface PostNormOptions {
  /** Number of columns that are normed together; by default all. */
  readonly group?: number;
  /** Factor on the normed rows; by default 1. */
  readonly scale?: number;
  /** Name of a tensor with one number that scales the sum. */
  readonly layerScale?: string;
}

/** Norms x and adds it to `to`. */
export function postNorm(
  b: PlanBuilder,
  x: Value,
  name: NormName,
  eps: number,
  to: Value,
  { group = x.columns, scale = 1, layerScale }: PostNormOptions = {},
): void {
  b.push(POST_NORM, {
    x: b.asFloat(x),
    weight: b.vector(typeof name === "string" ? `${name}.weight` : name.whole, group),
    group,
    eps,
    scale,
    layerScale: layerScale === undefined ? undefined : b.vector(`${layerScale}.weight`, 1),
    to: b.update(to),
  });
}
