/** Rewrites number bounds of a schema so that the library and every reader of the answer agree on them. */

/** Number of significant digits that every JSON reader parses exactly. */
const DIGITS = 15;
/** Bound in place of an excluded 0, with few digits. The smallest double would need 324. */
const NEAR_ZERO = 1e-20;

const EXCLUDED = [
  ["exclusiveMinimum", "minimum", 1],
  ["exclusiveMaximum", "maximum", -1],
] as const;

/**
 * Replaces excluded bounds and bounds of many digits in a schema. Readers round a number with more digits than a
 * double has: a number just below an excluded 5 would be read as 5. So the bound becomes the next number inward,
 * included.
 *
 * The library may also round a bound of many digits, so that bound becomes the next one inward with fewer digits.
 */
export function keepInward(schema: Record<string, unknown>): void {
  for (const [excluded, bound, sign] of EXCLUDED) {
    const value = schema[excluded];
    if (typeof value === "number") {
      delete schema[excluded];
      const next = neighbour(value, sign);
      const own = schema[bound];
      schema[bound] = typeof own === "number" && sign * own > sign * next ? own : next;
    }
    const kept = schema[bound];
    if (typeof kept === "number") schema[bound] = rounded(kept, sign);
  }
}

function rounded(bound: number, sign: 1 | -1): number {
  if (Number.isInteger(bound) || Number(bound.toPrecision(DIGITS)) === bound) return bound;
  const step = 10 ** (Math.floor(Math.log10(Math.abs(bound))) - DIGITS + 1);
  return Number((bound + sign * step).toPrecision(DIGITS));
}

const double = new Float64Array(1);
const bits = new BigInt64Array(double.buffer);

/** Returns the next double, upward or downward by `sign`. */
function neighbour(value: number, sign: 1 | -1): number {
  if (value === 0) return sign * NEAR_ZERO;
  double[0] = value;
  bits[0] += (value > 0) === (sign > 0) ? 1n : -1n;
  return double[0];
}
