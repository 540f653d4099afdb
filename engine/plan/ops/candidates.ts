import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, group, optional, real, weights } from "../operands.ts";
import { linear } from "./matmul.ts";

/**
 * Applies scale and softcap to logits, then penalties, bias and mask. Returns the best candidates and the log-sum-exp
 * of each logits row. Logits of rounded activations are recomputed for the best candidates from `exact`: rows x and the
 * matrix.
 */
export const CANDIDATES = opKind({
  op: "candidates",
  code: 8,
  operands: {
    logits: floats("update"),
    exact: optional(group({ x: floats("read"), weight: weights })),
    scale: real,
    /** Soft cap of logits: softcap * tanh(scale * logit / softcap); 0 means none. */
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
  /** Factor on logits; by default 1. */
  readonly scale?: number;
  /** Magnitude to which tanh bounds logits; by default 0, unbounded. */
  readonly softcap?: number;
}

/**
 * Adds the best next tokens of each row of x. `name` is the output matrix; by default "output", or the
 * embedding where the file has no output matrix. A draft may choose from only the `first` tokens.
 */
export function candidates(
  b: PlanBuilder,
  x: Value,
  vocab: number,
  { scale = 1, softcap = 0 }: LogitOptions = {},
  name: string = b.file.tensors.has("output.weight") ? "output" : "token_embd",
  first = vocab,
): void {
  // The exact pass adds no bias. With a bias, all logits are computed from rows in two planes instead.
  const biased = b.file.tensors.has(`${name}.bias`);
  const part = first < vocab ? { first: 0, of: vocab } : undefined;
  const [logits] = linear(b, x, [{ name, rows: first, part, fine: biased ? first : 0 }]);
  const whole = `${name}.weight`;
  const weight = b.matrix(part ? { name: whole, ...part } : whole, x.columns, first);
  const rounded = !biased && !b.readsFloats(weight);
  const exact = rounded ? { x: b.asFloat(x), weight } : undefined;
  b.push(CANDIDATES, { logits: b.asFloat(logits), exact, scale, softcap });
}
