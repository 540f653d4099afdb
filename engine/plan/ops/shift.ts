import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, rowState } from "../operands.ts";

/** out = each token's row of x one token later, zeros for a sequence's first. The last token's is carried as state. */
export const SHIFT = opKind({
  op: "shift",
  code: 29,
  operands: { x: floats("read"), state: rowState, out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = shift(${t.buffer(op.x)}; state ${op.state})`,
});

/** For each token the row of the one before it. */
export function shift(b: PlanBuilder, x: Value): Value {
  const out = b.floats("before", x.rows, x.columns);
  const state = b.stateLayer({ conv: { inputs: 1, channels: x.columns } });
  b.push({ op: "shift", x: b.asFloat(x), state, out: b.asFloat(out) });
  return out;
}
