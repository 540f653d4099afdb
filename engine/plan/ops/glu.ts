import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { activation, forms, optional, product, real, weights } from "../operands.ts";
import { gate as gated } from "./gate.ts";
import { fused, linear } from "./matmul.ts";
import { type Activation, GLU_NAMES } from "../values.ts";

/**
 * Gated linear unit: out = activation(gate x + bias) * (up x + bias). If `limit` is not 0, it bounds the activation's
 * results from above, and the other factor on both sides.
 */
export const GLU = opKind({
  op: "glu",
  code: 4,
  operands: {
    x: forms("read", 2),
    gate: product,
    gateBias: optional(weights),
    up: product,
    upBias: optional(weights),
    activation,
    limit: real,
    out: forms("write", 2),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = ${GLU_NAMES[op.activation]}(${t.affine(op.gate, op.gateBias)}, ${
      t.affine(op.up, op.upBias)
    }) of ${t.forms(op.x)}${limited(op.limit)}`,
});

/** Returns the text of a bound. */
export function limited(limit: number): string {
  return limit === 0 ? "" : `, within ${limit}`;
}

/**
 * Returns the gated hidden rows of a feed-forward block, `rows` columns wide, with the file's biases if any.
 * If `gate` equals `up`, the tensor holds the gate's rows and then up's. Adapters change the products before
 * the activation, so with them several ops replace the fused one.
 */
export function glu(
  b: PlanBuilder,
  x: Value,
  gate: string,
  up: string,
  rows: number,
  activation: Activation = "silu",
  limit = 0,
): Value {
  if (b.adapts(`${gate}.weight`) || b.adapts(`${up}.weight`)) {
    const halves = gate === up ? fused(gate, [rows, rows]) : [gate, up].map((name) => ({ name, rows }));
    const [inner, factor] = linear(b, x, halves);
    if (limit !== 0) b.adapters!.refuse(`${gate}.weight`);
    if (activation === "gelu") return gated(b, inner, factor, { activation });
    if (activation !== "silu") b.adapters!.refuse(`${gate}.weight`);
    return gated(b, gated(b, inner, inner, { activation: "sigmoid" }), factor);
  }
  const out = b.value("ffn", x.rows, rows);
  const height = gate === up ? 2 * rows : rows;
  const [g, u] = [gate, up].map((name) => b.operand(x, b.matrix(`${name}.weight`, x.columns, height)));
  const [gateBias, upBias] = [gate, up].map((name) => b.bias(name, height));
  b.push(GLU, { x: b.blocksOf(x), gate: g, gateBias, up: u, upBias, activation, limit, out: out.forms });
  return out;
}
