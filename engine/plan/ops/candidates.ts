import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, group, optional, weights } from "../operands.ts";
import { linear } from "./matmul.ts";

/**
 * Penalties, bias, mask, best candidates and log-sum-exp of each logits row. Where the logits were computed from
 * rounded activations, the best of them are computed once more from `exact`: rows x, and the matrix.
 */
export const CANDIDATES = opKind({
  op: "candidates",
  code: 8,
  operands: {
    logits: floats("update"),
    exact: optional(group({ x: floats("read"), weight: weights })),
  },
  text: ({ logits, exact }, t) =>
    exact
      ? `candidates(${t.buffer(logits)}; exact ${t.tensor(exact.weight)} of ${t.buffer(exact.x)})`
      : `candidates(${t.buffer(logits)})`,
});

/** The best tokens to follow each row of x; the embedding is the matrix where the file has none for the output. */
export function candidates(b: PlanBuilder, x: Value, vocab: number): void {
  const name = b.file.tensors.has("output.weight") ? "output" : "token_embd";
  const [logits] = linear(b, x, [{ name, rows: vocab }]);
  const weight = b.matrix(`${name}.weight`, x.columns, vocab);
  const rounded = x.forms.quant !== undefined;
  const exact = rounded ? { x: b.asFloat(x), weight } : undefined;
  b.push({ op: "candidates", logits: b.asFloat(logits), exact });
}
