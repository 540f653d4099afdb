/** What a constraint may cost. */

import { ConstraintError } from "./types.ts";

export const LIMITS = {
  /** Of a constraint written as JSON, schemas, choices and parts included. */
  bytes: 256 * 1024,
  /** How deep a schema may be nested. */
  depth: 64,
  /** From the call to the compiled grammar. */
  milliseconds: 1000,
  /** Symbols in all rules of the compiled grammar. */
  grammarSize: 100_000,
  /** Work to build the lexer and to work out its large expressions, about 50,000 a millisecond. */
  initialLexerFuel: 1_000_000,
  /** Work of the lexer for one mask, about 14,000 a millisecond. */
  stepLexerFuel: 200_000,
  /** States of one answer's lexer, of 1 to 2 kB each. */
  lexerStates: 10_000,
  /** Ways to read the answer up to one place. */
  itemsInRow: 1000,
  /** Parser's items for one mask, about 20,000 a millisecond. */
  stepItems: 50_000,
} as const;

export type Limits = typeof LIMITS;

/** Throws ConstraintError where a constraint's JSON text is too long. */
export function checkBytes(text: string): void {
  const bytes = new TextEncoder().encode(text).length;
  if (bytes > LIMITS.bytes) {
    throw new ConstraintError(
      `The constraint must have at most ${LIMITS.bytes} bytes as JSON (got ${bytes})`,
    );
  }
}

/** The limits as the library reads them. */
export function limitWords(): Uint32Array<ArrayBuffer> {
  return new Uint32Array([
    LIMITS.milliseconds,
    LIMITS.grammarSize,
    LIMITS.initialLexerFuel,
    LIMITS.stepLexerFuel,
    LIMITS.lexerStates,
    LIMITS.itemsInRow,
    LIMITS.stepItems,
  ]);
}
