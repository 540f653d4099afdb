/** Shared helpers for tests of constraints. */

import { assert } from "@std/assert";
import { bpeMetadata } from "../tokenizer/testing.ts";
import { TOKEN_TYPE } from "../tokenizer/token_types.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { Constraint, Grammar, Grammars } from "./types.ts";

/** A tokenizer with one token per byte, and one end token. */
export const byteTokenizer = createTokenizer(bpeMetadata({ extra: [["<|end|>", TOKEN_TYPE.CONTROL]] }));

/** Token id of each byte. */
const TOKENS = new Map(
  Array.from({ length: byteTokenizer.vocabSize }, (_, token) => [byteTokenizer.bytes(token), token] as const)
    .filter(([bytes]) => bytes.length === 1).map(([[byte], token]) => [byte, token]),
);

/** Returns whether the grammar for `byteTokenizer` accepts the whole text, byte by byte. */
export function takes(grammar: Grammar, text: string): boolean {
  const matcher = grammar.matcher();
  try {
    return [...new TextEncoder().encode(text)].every((byte) => matcher.consume(TOKENS.get(byte)!)) &&
      (matcher.mayEnd || matcher.complete);
  } finally {
    matcher.close();
  }
}

/** Returns a seeded generator of numbers in [0, 1). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Returns the tokens whose bits are set. */
export function allowed(mask: Uint32Array, vocabSize: number): number[] {
  const tokens: number[] = [];
  for (let token = 0; token < vocabSize; token++) {
    if ((mask[token >> 5] >>> (token & 31) & 1) === 1) tokens.push(token);
  }
  return tokens;
}

export interface RandomAnswer {
  readonly text: string;
  readonly tokens: readonly number[];
  /** How the answer ended: "stop": complete; "length": cut off; "failed": no token could follow. */
  readonly end: "stop" | "length" | "failed";
}

/** Returns an answer of random allowed tokens: the hardest model for a constraint. */
export async function randomAnswer(
  grammars: Grammars,
  tokenizer: Tokenizer,
  constraint: Constraint,
  random: () => number,
  most = 400,
): Promise<RandomAnswer> {
  const matcher = (await grammars.compile(constraint)).matcher();
  const tokens: number[] = [];
  const answer = (end: RandomAnswer["end"]) => ({
    text: tokenizer.decode(tokens, { continuation: true }),
    tokens,
    end,
  });
  /** An allowed token is refused only if a limit was exceeded; then no token can follow. */
  const failed = async (token: number) => {
    const [mask] = await grammars.masks([matcher]);
    assert(mask.every((word) => word === 0), `token ${token} was allowed and is refused`);
    return answer("failed");
  };
  try {
    while (tokens.length < most) {
      for (const token of matcher.forced()) {
        if (!matcher.consume(token)) return await failed(token);
        tokens.push(token);
      }
      if (matcher.complete) return answer("stop");
      const [mask] = await grammars.masks([matcher]);
      const choices = allowed(mask, tokenizer.vocabSize);
      if (choices.length === 0) return answer("failed");
      const token = choices[Math.floor(random() * choices.length)];
      if (!matcher.consume(token)) return await failed(token);
      if (tokenizer.endTokens.has(token)) return answer("stop");
      tokens.push(token);
    }
    return answer("length");
  } finally {
    matcher.close();
  }
}
