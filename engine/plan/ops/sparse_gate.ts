import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, real } from "../operands.ts";

/**
 * out = gelu(max(gate - cutoff, 0)) * x, where a row's cutoff is so many standard deviations above the mean of its gates; GELU is the
 * tanh formula.
 */
export const SPARSE_GATE = opKind({
  op: "sparse_gate",
  code: 38,
  operands: { gate: floats("read"), deviations: real, x: floats("read"), out: forms("write", 3) },
  text: (op, t) => {
    const gate = `${t.buffer(op.gate)} above mean + ${op.deviations} deviations; gelu`;
    return `${t.forms(op.out)} = sparse_gate(${gate}) of ${t.buffer(op.x)}`;
  },
});

/** The product of x and those gates that are far above their row's mean, through GELU. */
export function sparseGate(b: PlanBuilder, gate: Value, x: Value, deviations: number): Value {
  const out = b.value("gated", x.rows, x.columns);
  b.push({ op: "sparse_gate", gate: b.asFloat(gate), deviations, x: b.asFloat(x), out: out.forms });
  return out;
}
