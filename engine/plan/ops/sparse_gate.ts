import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, real } from "../operands.ts";

/**
 * Sparse gate: out = gelu(max(gate - cutoff, 0)) * x. A row's cutoff is `deviations` standard deviations above the mean
 * of its gates. GELU is the tanh approximation.
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

/** Returns x times the GELU of its gates. Gates below the row's cutoff count as 0. */
export function sparseGate(b: PlanBuilder, gate: Value, x: Value, deviations: number): Value {
  const out = b.value("gated", x.rows, x.columns);
  b.push(SPARSE_GATE, { gate: b.asFloat(gate), deviations, x: b.asFloat(x), out: out.forms });
  return out;
}
