/** Constraints checked where no model is loaded. */

import type { Tokenizer } from "../tokenizer/types.ts";
import { createGrammars } from "./grammars.ts";
import type { Constraint, Grammars } from "./types.ts";

/** Token ids that a grammar may name are below this. */
const TOKENS = 1 << 18;

/** A token for each byte, one that ends, and room for what grammars name by number. */
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
 * Compiles a constraint for a vocabulary of single bytes. Throws ConstraintError where every model would refuse it: a model's own
 * vocabulary can only make it larger, which the limits may still refuse.
 */
export async function checkConstraint(constraint: Constraint): Promise<void> {
  await (grammars ??= createGrammars(BYTES)).compile(constraint);
}
