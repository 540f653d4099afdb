import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { compareRows, divergenceOf, estimate, perplexityOf } from "./token_scores.ts";

const logits = (...probabilities: number[]) => Float32Array.from(probabilities, (p) => Math.log(p) + 7);

Deno.test("perplexity: returns e to the mean negative log-likelihood, and the standard error", () => {
  assertEquals(estimate([3]), { value: 3, error: 0 });
  // The variance of 1 and 3 around 2 is 1. The estimate's variance is divided by the number of values minus 1.
  assertEquals(estimate([1, 3]), { value: 2, error: 1 });
  const { value, error } = perplexityOf([Math.log(4), Math.log(16)]);
  assertAlmostEquals(value, 8);
  assertAlmostEquals(error, 8 * Math.log(2));
});

Deno.test("divergence: sums over the vocabulary, from the reference to the model", () => {
  const { nll, reference } = compareRows(logits(0.5, 0.25, 0.25), logits(0.25, 0.25, 0.5), 0);
  assertAlmostEquals(nll, Math.log(2), 1e-6);
  assertAlmostEquals(reference!.nll, Math.log(4), 1e-6);
  assertAlmostEquals(reference!.divergence, 0.25 * Math.log(0.5) + 0.5 * Math.log(2), 1e-6);
  assert(!reference!.sameTop);
  const same = compareRows(logits(0.5, 0.5), logits(0.5, 0.5), 1).reference!;
  assertAlmostEquals(same.divergence, 0, 1e-12);
  assert(same.sameTop);
});

Deno.test("divergence: tokens that the reference excludes do not count", () => {
  const { divergence } = compareRows(logits(0.5, 0.5, 0), logits(1, 0, 0), 0).reference!;
  assertAlmostEquals(divergence, Math.log(2), 1e-6);
  assertEquals(compareRows(logits(1, 0), logits(0.5, 0.5), 0).reference!.divergence, Infinity);
});

Deno.test("divergence: reports percentiles, equal top tokens and differences of probabilities", () => {
  assertEquals(divergenceOf([{ nll: 1 }]), undefined);
  const scores = [4, 0, 2, 1, 3].map((divergence, i) => ({
    nll: Math.log(2),
    reference: { nll: Math.log(i === 0 ? 2 : 4), divergence, sameTop: i > 0 },
  }));
  const figures = divergenceOf(scores)!;
  assertEquals(figures.divergence.value, 2);
  const at = new Map(figures.percentiles);
  assertEquals([0, 50, 100].map((percent) => at.get(percent)), [0, 2, 4]);
  assertAlmostEquals(at.get(90)!, 3.6);
  assertAlmostEquals(figures.sameTop.value, 0.8);
  assertAlmostEquals(figures.sameTop.error, Math.sqrt(0.8 * 0.2 / 4));
  assertAlmostEquals(figures.difference.value, 0.2);
  assertAlmostEquals(figures.difference.rms, Math.sqrt(0.05));
  assertAlmostEquals(figures.logRatio.value, -0.8 * Math.log(2));
});
