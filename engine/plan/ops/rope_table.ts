import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer } from "../operands.ts";
import type { RopeAngles } from "../values.ts";

/**
 * Rotary table: out = cos and then sin of position x frequency, both times the magnitude. `table` is an index into
 * `Plan.rope`.
 */
export const ROPE_TABLE = opKind({
  op: "rope_table",
  code: 1,
  operands: { out: floats("write"), table: integer },
  text: (op, t) => `${t.buffer(op.out)} = rope_table(${op.table === 0 ? "" : op.table})`,
});

/** Adds a table, and returns cos and sin of each token's position. */
export function ropeTable(b: PlanBuilder, angles: RopeAngles): Value {
  const table = b.ropeTable(angles);
  const out = b.floats("angles", "step", 2 * angles.frequencies.length);
  b.writePositional(out, () => b.push(ROPE_TABLE, { out: b.asFloat(out), table }));
  return out;
}
