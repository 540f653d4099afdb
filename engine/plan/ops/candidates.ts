import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, group, optional, real, weights } from "../operands.ts";
import { linear } from "./matmul.ts";

/**
 * Scale and softcap of the logits; then penalties, bias, mask, best candidates and log-sum-exp of each logits row. Where the
 * logits were computed from rounded activations, the best of them are computed once more from `exact`: rows x, and the matrix.
 */
export const CANDIDATES = opKind({
  op: "candidates",
  code: 8,
  operands: {
    logits: floats("update"),
    exact: optional(group({ x: floats("read"), weight: weights })),
    scale: real,
    /** Logits become softcap * tanh(scale * logit / softcap); 0 is none. */
    softcap: real,
  },
  text: ({ logits, exact, scale, softcap }, t) => {
    const operands = [t.buffer(logits)];
    if (exact) operands.push(`exact ${t.tensor(exact.weight)} of ${t.buffer(exact.x)}`);
    if (scale !== 1) operands.push(`scale ${scale}`);
    if (softcap !== 0) operands.push(`softcap ${softcap}`);
    return `candidates(${operands.join("; ")})`;
  },
});

export interface LogitOptions {
  /** What logits are multiplied by; by default 1. */
  readonly scale?: number;
  /** Logits stay within plus and minus this, by a tanh; 0, the default, is no bound. */
  readonly softcap?: number;
}

/** The best tokens to follow each row of x, by the matrix `name`; by default the embedding where the file has none for the output. */
export function candidates(
  b: PlanBuilder,
  x: Value,
  vocab: number,
  { scale = 1, softcap = 0 }: LogitOptions = {},
  name: string = b.file.tensors.has("output.weight") ? "output" : "token_embd",
): void {
  // What is computed once more has no bias: with one, all logits are computed of rows in two planes instead.
  const biased = b.file.tensors.has(`${name}.bias`);
  const [logits] = linear(b, x, [{ name, rows: vocab, fine: biased ? vocab : 0 }]);
  const weight = b.matrix(`${name}.weight`, x.columns, vocab);
  const rounded = !biased && !b.readsFloats(weight);
  const exact = rounded ? { x: b.asFloat(x), weight } : undefined;
  b.push({ op: "candidates", logits: b.asFloat(logits), exact, scale, softcap });
}
