/** Limits on the cost of a constraint. */

import { type Constraint, ConstraintError } from "./types.ts";

export const LIMITS = {
  /** Maximum characters of all texts and names in a constraint. */
  characters: 256 * 1024,
  /** Maximum values in a constraint's schemas, choices and parts. */
  values: 20_000,
  /** Maximum properties of one object in a schema. */
  properties: 1000,
  /** Maximum `patternProperties` of one object: each pair is compared. */
  patternProperties: 50,
  /** Maximum nesting of schemas, of parts, and of a grammar's parentheses. */
  depth: 64,
  /** Maximum rules and terminals of a grammar. */
  rules: 2000,
  /** Maximum numbers in a grammar's `{m,n}`. */
  repetitions: 100_000,
  /**
   * Maximum compile time, about twice that of the largest schemas. Measured times are higher if threads share cores.
   */
  milliseconds: 400,
  /** Maximum symbols in all rules of the compiled grammar. */
  grammarSize: 100_000,
  /** Maximum work to build the lexer and its large expressions; about 50,000 per millisecond. */
  initialLexerFuel: 400_000,
  /** Maximum work of the lexer for one mask; about 14,000 per millisecond. */
  stepLexerFuel: 200_000,
  /** Maximum lexer states of one answer; 1 to 2 kB each. */
  lexerStates: 10_000,
  /** Maximum ways to parse the answer up to one position. */
  itemsInRow: 2000,
  /** Maximum parser items for one mask; about 20,000 per millisecond. */
  stepItems: 50_000,
} as const;

/** Returns the error for a constraint over a limit. */
export function over(limit: keyof typeof LIMITS, what: string, value: number): ConstraintError {
  return new ConstraintError(`The constraint's ${what} must be at most ${LIMITS[limit]} (got ${value})`);
}

/** Throws ConstraintError if a constraint is too large or too deep, before other code reads it. */
function checkSize(constraint: Constraint): void {
  let characters = 0, values = 0;
  // The value is checked level by level, so that its depth does not become stack depth.
  let layer: unknown[] = [constraint];
  // A part is two levels below its parent, and a schema one level below its constraint.
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

/** Returns a constraint as JSON. Throws ConstraintError if it is too large or too deep. */
export function checkedText(constraint: Constraint): string {
  checkSize(constraint);
  return JSON.stringify(constraint);
}

/** Returns the limits in the order that the library reads. */
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
