/**
 * Which tier of the tests runs: docs/TESTING.md explains them. The second tier runs every test file that names what this
 * module exports, with all of its cases. The first tier runs the files that call `Deno.test` or name `firstTier`.
 */

/** True in the second tier: `deno task test:full`, or COMPY_TEST_TIER=full. */
export const isFullTier = Deno.env.get("COMPY_TEST_TIER") === "full";

/** What registers the tests of a case that is in the first tier: `Deno.test`, for where a condition chooses the tier. */
export const firstTier = { test: Deno.test };

/** `fullTier.test` is `Deno.test` in the second tier. In the first one it registers nothing. */
export const fullTier = { test: (isFullTier ? Deno.test : () => {}) as typeof Deno.test };

/** Every `n`th case of a table in the first tier, all of them in the second one. */
export function everyNth<T>(n: number, cases: readonly T[]): readonly T[] {
  return isFullTier ? cases : cases.filter((_, i) => i % n === 0);
}
