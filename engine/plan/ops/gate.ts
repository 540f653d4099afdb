import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer, optional } from "../operands.ts";

/** Functions applied to a gate before it multiplies; GELU is the tanh approximation. */
export const GATE_ACTIVATIONS = ["none", "sigmoid", "gelu", "softplus"] as const;
export type GateActivation = typeof GATE_ACTIVATIONS[number];

/**
 * Op: out = activation(gate) * x, or `to` += activation(gate) * x. The gate has a number per column, or fewer, each for a
 * run of equally many columns, such as a head or the whole row. Columns of x are read from `from` on. Exactly one of `out` and `to` is present.
 */
export const GATE = opKind({
  op: "gate",
  code: 20,
  operands: {
    gate: floats("read"),
    /** The gate's activation: an index into GATE_ACTIVATIONS. */
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
  /** Function applied to the gate; by default none. */
  readonly activation?: GateActivation;
  /** Value to which the product is added (a residual connection); by default it is a new value. */
  readonly addTo?: Value;
  /** The first column of x to read and the number of columns; by default all. */
  readonly from?: number;
  readonly columns?: number;
}

/** Returns the product of x and an activated gate, which has a number per column, per head or per row. */
export function gate(
  b: PlanBuilder,
  gate: Value,
  x: Value,
  { activation = "none", addTo, from = 0, columns = x.columns - from }: GateOptions = {},
): Value {
  const out = addTo ?? b.floats("gated", x.rows, columns);
  b.push(GATE, {
    gate: b.asFloat(gate),
    activation: GATE_ACTIVATIONS.indexOf(activation),
    x: b.asFloat(x),
    from,
    ...addTo ? { to: b.update(out) } : { out: b.asFloat(out) },
  });
  return out;
}
