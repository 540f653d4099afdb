/** Rewrites the keywords of numbers so that the library and every reader of the answer agree on them. */

import { type Findings, type Path, type Schema, show } from "./findings.ts";
import { keepInward } from "./number_bounds.ts";

/**
 * Largest integer that every JSON reader parses exactly. Numbers without bounds get it as their bound, so they have at
 * most 16 digits.
 */
const LARGEST = Number.MAX_SAFE_INTEGER;
/** Lowest integer bound: the library counts in 64 bits. */
const LEAST_64 = -(2 ** 63) + 1024;
const MOST_64 = 2 ** 63;
/** Maximum bound of numbers that are not integers: the library compares their integer parts in 64 bits. */
const MOST_REAL = 2 ** 63 - 1024;
/** Largest divisor that does not overflow in the library. */
const LARGEST_DIVISOR = 400_000_000;
/** Step of numbers in tool arguments: at most nine decimal places. */
const FINEST = 1e-9;
const BOUNDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

/** Whether the guards of tool arguments apply, so that numbers have no endless fraction and no exponent. */
export interface NumberGuard {
  readonly fraction: boolean;
}

/** Checks the keywords of numbers in a schema, and rewrites them in `result`. */
export function readNumbers(
  schema: Schema,
  result: Record<string, unknown>,
  path: Path,
  findings: Findings,
  guard: NumberGuard,
): void {
  const types = new Set([schema.type].flat());
  const isNumber = types.has("number") || types.has("integer");
  if (!isNumber && !BOUNDS.some((name) => name in result) && !("multipleOf" in result)) return;
  const isInteger = types.has("integer") && !types.has("number");
  for (const keyword of BOUNDS) {
    if (!(keyword in result)) continue;
    const bound = boundOf(result[keyword], keyword.endsWith("inimum") ? -1 : 1, isInteger);
    if (bound === undefined) {
      findings.refuse([...path, keyword], `must be a number within 64 bits (got ${show(result[keyword])})`);
      delete result[keyword];
    } else result[keyword] = bound;
  }
  const most = mostMultiple(result, path, findings);
  keepInward(result);
  const isBounded = "minimum" in result || "maximum" in result;
  if (isInteger || isBounded || guard.fraction || most !== undefined) {
    // If one bound is beyond LARGEST, the other bound on that side of 0 becomes the 64-bit limit.
    const other = (bound: unknown, sign: 1 | -1) =>
      typeof bound === "number" && sign * bound > LARGEST ? sign * MOST_REAL : sign * LARGEST;
    result.minimum ??= most === undefined ? other(result.maximum, -1) : -most;
    result.maximum ??= most === undefined ? other(result.minimum, 1) : most;
  }
  if (most !== undefined) {
    result.minimum = Math.max(result.minimum as number, -most);
    result.maximum = Math.min(result.maximum as number, most);
  } else if (guard.fraction && !isInteger && isCoarse(result.minimum) && isCoarse(result.maximum)) {
    result.multipleOf = FINEST;
  }
}

/** Returns a bound that the library can read; undefined if there is none. `side` is -1 for a lower bound. */
function boundOf(value: unknown, side: 1 | -1, isInteger: boolean): number | undefined {
  if (typeof value !== "number") return undefined;
  if (side * value <= -MOST_REAL) return undefined;
  const most = side < 0 ? LEAST_64 : isInteger ? MOST_64 : MOST_REAL;
  return side * value > side * most ? most : value;
}

/** Returns whether a bound is a multiple of 1e-6, so that numbers in steps of FINEST reach it. */
function isCoarse(bound: unknown): boolean {
  return Number.isInteger((bound as number) * 1e6);
}

/**
 * Returns the largest number up to which multiples are the same in decimal and binary; undefined without `multipleOf`.
 * A reader that divides binary fractions may still find that 0.07 is no multiple of 0.01.
 */
function mostMultiple(result: Record<string, unknown>, path: Path, findings: Findings): number | undefined {
  const { multipleOf } = result;
  if (multipleOf === undefined) return undefined;
  const at = [...path, "multipleOf"];
  if (typeof multipleOf !== "number" || !(multipleOf > 0)) {
    findings.refuse(at, `must be a number above 0 (got ${show(multipleOf)})`);
  } else {
    const digits = digitsOf(multipleOf);
    if (digits !== undefined) return digits === 0 ? LARGEST : 10 ** (15 - digits);
    const what = `must have at most 9 digits, and a fraction that ends (got ${multipleOf})`;
    findings.refuse(at, what);
  }
  delete result.multipleOf;
}

/** Returns the number of decimal places as the library counts them; undefined if the library counts wrongly. */
function digitsOf(step: number): number | undefined {
  let value = step, digits = 0;
  for (; value % 1 !== 0; digits++) value *= 10;
  const isExact = digits <= 9 && Number(`${value}e-${digits}`) === step;
  return isExact && value <= LARGEST_DIVISOR ? digits : undefined;
}
