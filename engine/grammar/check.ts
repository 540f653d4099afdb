/** Checks constraints without a loaded model. */

import type { Tokenizer } from "../tokenizer/types.ts";
import { createGrammars } from "./grammars.ts";
import type { Constraint, Grammars } from "./types.ts";

/** Upper limit of token ids that a grammar may name. */
const TOKENS = 1 << 18;

/** A test vocabulary with one token per byte, an end token, and space for token ids that grammars name. */
const BYTES: Tokenizer = {
  vocabSize: TOKENS,
  bosToken: undefined,
  eosToken: 256,
  padToken: undefined,
  separatorToken: undefined,
  infill: undefined,
  endTokens: new Set([256]),
  encode: (text) => [...new TextEncoder().encode(text)],
  decode: (tokens) => new TextDecoder().decode(Uint8Array.from(tokens)),
  bytes: (token) => token < 256 ? Uint8Array.of(token) : new Uint8Array(0),
  isControl: (token) => token >= 256,
  streamDecoder: () => {
    throw new Error("Bytes are not decoded as a stream");
  },
};

let grammars: Grammars | undefined;

/**
 * Compiles a constraint for a vocabulary of single bytes. Throws ConstraintError if every model would refuse it. A
 * model may still refuse the constraint, because a larger vocabulary makes it larger.
 */
export async function checkConstraint(constraint: Constraint): Promise<void> {
  await (grammars ??= createGrammars(BYTES)).compile(constraint);
}
