import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer, optional } from "../operands.ts";

/** What becomes of a gate before it multiplies; GELU is the tanh formula. */
export const GATE_ACTIVATIONS = ["none", "sigmoid", "gelu"] as const;
export type GateActivation = typeof GATE_ACTIVATIONS[number];

/**
 * out = activation(gate) * x, or to += that: column by column, or by one number a row where the gate has one column. Of x the
 * columns are read from `from` on. Either `out` or `to` is there.
 */
export const GATE = opKind({
  op: "gate",
  code: 20,
  operands: {
    gate: floats("read"),
    /** An index into GATE_ACTIVATIONS. */
    activation: integer,
    x: floats("read"),
    from: integer,
    out: optional(floats("write")),
    to: optional(floats("update")),
  },
  text: (op, t) => {
    const activation = op.activation === 0 ? "" : `; ${GATE_ACTIVATIONS[op.activation]}`;
    const from = op.from === 0 ? "" : ` from column ${op.from}`;
    const result = op.out === undefined ? `${t.buffers(op.to!)} +=` : `${t.buffer(op.out)} =`;
    return `${result} gate(${t.buffer(op.gate)}${activation}) of ${t.buffer(op.x)}${from}`;
  },
});

export interface GateOptions {
  /** What becomes of the gate first; by default it multiplies as it is. */
  readonly activation?: GateActivation;
  /** Adds to this value (a residual connection) instead of making a new one. */
  readonly addTo?: Value;
  /** The columns of x that are read: so many from there on; by default all. */
  readonly from?: number;
  readonly columns?: number;
}

/** The product of two values, one of them through an activation; a gate of one column is a number a row. */
export function gate(
  b: PlanBuilder,
  gate: Value,
  x: Value,
  { activation = "none", addTo, from = 0, columns = x.columns - from }: GateOptions = {},
): Value {
  const out = addTo ?? b.floats("gated", x.rows, columns);
  b.push({
    op: "gate",
    gate: b.asFloat(gate),
    activation: GATE_ACTIVATIONS.indexOf(activation),
    x: b.asFloat(x),
    from,
    ...addTo ? { to: b.update(out) } : { out: b.asFloat(out) },
  });
  return out;
}
