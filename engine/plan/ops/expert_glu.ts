import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { activation, chosenExperts, forms, optional, product, real, weights } from "../operands.ts";
import { type Activation, type Chosen, GLU_NAMES } from "../values.ts";
import { limited } from "./glu.ts";

/** Op for each expert e that row x chose: out = activation(gate_e x + bias_e) * (up_e x + bias_e), bounded as in `glu`. */
export const EXPERT_GLU = opKind({
  op: "expert_glu",
  code: 13,
  operands: {
    x: forms("read", 2),
    chosen: chosenExperts("read"),
    gate: product,
    gateBias: optional(weights),
    up: product,
    upBias: optional(weights),
    activation,
    limit: real,
    out: forms("write", 2),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = expert_${GLU_NAMES[op.activation]}(${t.affine(op.gate, op.gateBias)}, ${
      t.affine(op.up, op.upBias)
    }) of ${t.forms(op.x)} by ${t.buffer(op.chosen.buffer)}${limited(op.limit)}`,
});

/**
 * Returns the gated hidden rows of experts, `rows` columns wide, with the file's biases if any: one row per
 * expert that a row of x chose. If `gate` equals `up`, each expert's matrix holds the gate's rows and then
 * up's.
 */
export function expertGlu(
  b: PlanBuilder,
  x: Value,
  chosen: Chosen,
  gate: string,
  up: string,
  rows: number,
  activation: Activation = "silu",
  limit = 0,
): Value {
  const { count, used } = chosen;
  const out = b.value("ffn", { count, used }, rows);
  const height = gate === up ? 2 * rows : rows;
  const matrix = (name: string) => b.experts(`${name}.weight`, x.columns, height, count);
  const [g, u] = [gate, up].map((name) => b.expertOperand(x, matrix(name)));
  const [gateBias, upBias] = [gate, up].map((name) => b.bias(name, height, count));
  b.push(EXPERT_GLU, {
    x: { float: x.forms.float, quant: x.forms.quant },
    chosen,
    gate: g,
    gateBias,
    up: u,
    upBias,
    activation,
    limit,
    out: out.forms,
  });
  return out;
}
