/**
 * Decides which tier of the tests runs (docs/TESTING.md). The second tier runs every test file that names what this
 * module exports, with all of its cases. The first tier runs the files that call `Deno.test` or name `firstTier`.
 */

/** Whether the second tier runs: `deno task test:full`, or COMPY_TEST_TIER=full. */
export const isFullTier = Deno.env.get("COMPY_TEST_TIER") === "full";

/**
 * Registers tests of the first tier: `firstTier.test` is `Deno.test`, for use with `fullTier` if a condition chooses.
 */
export const firstTier = { test: Deno.test };

/** `fullTier.test` is `Deno.test` in the second tier. In the first one it registers nothing. */
export const fullTier = { test: (isFullTier ? Deno.test : () => {}) as typeof Deno.test };

/** Returns every `n`th case of a table in the first tier, all cases in the second tier. */
export function everyNth<T>(n: number, cases: readonly T[]): readonly T[] {
  return isFullTier ? cases : cases.filter((_, i) => i % n === 0);
}
