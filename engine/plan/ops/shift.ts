import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, rowState } from "../operands.ts";

/**
 * Op: out = the row of x of the previous token, zeros for a sequence's first token. The last token's row is recurrent
 * state.
 */
export const SHIFT = opKind({
  op: "shift",
  code: 29,
  operands: { x: floats("read"), state: rowState, out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = shift(${t.buffer(op.x)}; state ${op.state})`,
});

/** Returns for each token the row of the previous token. */
export function shift(b: PlanBuilder, x: Value): Value {
  const out = b.floats("before", x.rows, x.columns);
  const state = b.stateLayer({ conv: { inputs: 1, channels: x.columns } });
  b.push(SHIFT, { x: b.asFloat(x), state, out: b.asFloat(out) });
  return out;
}
