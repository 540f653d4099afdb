/** Bounds of numbers in a schema as the library keeps to them, and as all who read the answer do. */

/** So many digits of a number are read exactly by everybody. */
const DIGITS = 15;
/** What an excluded 0 is kept away from by: of fewer digits than the smallest double's 324. */
const NEAR_ZERO = 1e-20;

const EXCLUDED = [
  ["exclusiveMinimum", "minimum", 1],
  ["exclusiveMaximum", "maximum", -1],
] as const;

/**
 * Changes the numbers' bounds of a schema. What is written with more digits than a double has is read as its neighbour: below an
 * excluded 5 that would be 5 itself. So the bound is the next number inward, and not excluded. The library, too, may read a bound of
 * many digits as its neighbour: such a one becomes the next of fewer digits inward.
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

/** The next double. */
function neighbour(value: number, sign: 1 | -1): number {
  if (value === 0) return sign * NEAR_ZERO;
  double[0] = value;
  bits[0] += (value > 0) === (sign > 0) ? 1n : -1n;
  return double[0];
}
