/** What a constraint may cost. */

import { type Constraint, ConstraintError } from "./types.ts";

export const LIMITS = {
  /** Characters of all texts and names in a constraint. */
  characters: 256 * 1024,
  /** Values of a constraint's schemas, choices and parts. */
  values: 20_000,
  /** Properties of one object in a schema. */
  properties: 1000,
  /** `patternProperties` of one object: each is compared with each. */
  patternProperties: 50,
  /** How deep schemas, parts and a grammar's parentheses may be nested. */
  depth: 64,
  /** Rules and terminals of a grammar. */
  rules: 2000,
  /** In a grammar's `{m,n}`. */
  repetitions: 100_000,
  /** That the compiler computes for, about twice what the largest schemas take; the clock says more where threads share the cores. */
  milliseconds: 400,
  /** Symbols in all rules of the compiled grammar. */
  grammarSize: 100_000,
  /** Work to build the lexer and to work out its large expressions, about 50,000 a millisecond. */
  initialLexerFuel: 400_000,
  /** Work of the lexer for one mask, about 14,000 a millisecond. */
  stepLexerFuel: 200_000,
  /** States of one answer's lexer, of 1 to 2 kB each. */
  lexerStates: 10_000,
  /** Ways to read the answer up to one place. */
  itemsInRow: 2000,
  /** Parser's items for one mask, about 20,000 a millisecond. */
  stepItems: 50_000,
} as const;

/** The refusal of what is over a limit. */
export function over(limit: keyof typeof LIMITS, what: string, value: number): ConstraintError {
  return new ConstraintError(`The constraint's ${what} must be at most ${LIMITS[limit]} (got ${value})`);
}

/** Throws ConstraintError where a constraint is too large or too deep, before anything else reads it. */
export function checkSize(constraint: Constraint): void {
  let characters = 0, values = 0;
  // By layers: a stranger's depth must not become that of a stack.
  let layer: unknown[] = [constraint];
  // A part stands two levels below what it is a part of, and a schema one below its constraint.
  for (let depth = 0; layer.length > 0; depth++) {
    if (depth > LIMITS.depth) throw over("depth", "depth", depth);
    const next: unknown[] = [];
    for (const value of layer) {
      values++;
      if (typeof value === "string") characters += value.length;
      if (typeof value !== "object" || value === null) continue;
      const length = Array.isArray(value) ? value.length : Object.keys(value).length;
      if (values + next.length + length > LIMITS.values) {
        throw over("values", "number of values", values + next.length + length);
      }
      for (const [key, inner] of Object.entries(value)) {
        if (!Array.isArray(value)) characters += key.length;
        next.push(inner);
      }
      if (values + next.length > LIMITS.values) {
        throw over("values", "number of values", values + next.length);
      }
    }
    if (characters > LIMITS.characters) throw over("characters", "number of characters", characters);
    layer = next;
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
