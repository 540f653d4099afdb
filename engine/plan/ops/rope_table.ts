import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, integer } from "../operands.ts";

/** out = cos of position x frequency, then sin; `table` is an index into `Plan.rope`. */
export const ROPE_TABLE = opKind({
  op: "rope_table",
  code: 1,
  operands: { out: floats("write"), table: integer },
  text: (op, t) => `${t.buffer(op.out)} = rope_table(${op.table === 0 ? "" : op.table})`,
});

/** The angles of each token's position: `frequencies` are angles a position, one for each pair of dimensions. */
export function ropeTable(b: PlanBuilder, frequencies: Float64Array): Value {
  const out = b.floats("angles", "step", 2 * frequencies.length);
  b.push({ op: "rope_table", out: b.asFloat(out), table: b.ropeTable(frequencies) });
  return out;
}
