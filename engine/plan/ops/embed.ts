import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, weights } from "../operands.ts";

/** out = rows of the matrix, by token id. */
export const EMBED = opKind({
  op: "embed",
  code: 0,
  operands: { weight: weights, out: floats("write") },
  text: (op, t) => `${t.buffer(op.out)} = embed(${t.tensor(op.weight)})`,
});

/** The tokens' rows of the embedding. */
export function embed(b: PlanBuilder, name: string, vocab: number, columns: number): Value {
  const out = b.floats("x", "step", columns);
  b.push({ op: "embed", weight: b.matrix(`${name}.weight`, columns, vocab), out: b.asFloat(out) });
  return out;
}
