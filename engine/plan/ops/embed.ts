import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, real, weights } from "../operands.ts";

/** Embedding: out = scale times a row of the matrix per token id. */
export const EMBED = opKind({
  op: "embed",
  code: 0,
  operands: { weight: weights, scale: real, out: floats("write") },
  text: (op, t) => {
    const scale = op.scale === 1 ? "" : `; scale ${op.scale}`;
    return `${t.buffer(op.out)} = embed(${t.tensor(op.weight)}${scale})`;
  },
});

/** Returns the tokens' embedding rows times `scale`. */
export function embed(b: PlanBuilder, name: string, vocab: number, columns: number, scale = 1): Value {
  const out = b.floats("x", "step", columns);
  b.push(EMBED, { weight: b.matrix(`${name}.weight`, columns, vocab), scale, out: b.asFloat(out) });
  return out;
}
