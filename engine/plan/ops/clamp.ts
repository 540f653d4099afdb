import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, optional, weights } from "../operands.ts";

/** Op: out = x clamped to [`least`, `most`]. Each bound is a tensor of one number. */
export const CLAMP = opKind({
  op: "clamp",
  code: 49,
  operands: {
    x: floats("read"),
    least: optional(weights),
    most: optional(weights),
    out: floats("write"),
  },
  text: (op, t) => `${t.buffer(op.out)} = clamp(${t.buffer(op.x)}; ${t.tensors(op.least, op.most)})`,
});

/** Returns x clamped to the bounds in two tensors. A tensor that the file does not have sets no bound. */
export function clamp(b: PlanBuilder, x: Value, least: string, most: string): Value {
  const bound = (name: string) => b.file.tensors.has(name) ? b.vector(name, 1) : undefined;
  const bounds = { least: bound(least), most: bound(most) };
  if (bounds.least === undefined && bounds.most === undefined) return x;
  const out = b.floats("clamped", x.rows, x.columns);
  b.push(CLAMP, { x: b.asFloat(x), ...bounds, out: b.asFloat(out) });
  return out;
}
