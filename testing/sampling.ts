/** Candidates, settings and statistics for sampling tests. */
import type { Candidates } from "../engine/backend/backend.ts";
import { DEFAULT_SAMPLING, type SamplingParams } from "../engine/api/sampling.ts";

/** Returns candidates with ids from 100 on. `tail` is the rest of the vocabulary's share of the sum of exponentials. */
export function candidatesOf(logits: number[], tail = 0): Candidates {
  return {
    ids: Int32Array.from(logits.keys(), (i) => i + 100),
    logits: Float32Array.from(logits),
    rawLogits: Float32Array.from(logits),
    logSumExp: Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), tail)),
    deviation: deviationOf(logits),
    probed: new Float32Array(0),
  };
}

export function withSampling(changes: Partial<SamplingParams>): SamplingParams {
  return { ...DEFAULT_SAMPLING, ...changes };
}

export function deviationOf(logits: ArrayLike<number>): number {
  const all = Array.from(logits);
  const mean = all.reduce((sum, logit) => sum + logit, 0) / all.length;
  return Math.sqrt(all.reduce((sum, logit) => sum + (logit - mean) ** 2, 0) / all.length);
}

/** Returns Pearson's chi-square statistic; its expected value is the degrees of freedom. */
export function chiSquare(counts: number[], probabilities: number[]): number {
  const draws = counts.reduce((sum, count) => sum + count, 0);
  return counts.reduce((sum, count, i) => {
    const expected = draws * probabilities[i];
    return expected === 0 ? sum + count * Infinity || sum : sum + (count - expected) ** 2 / expected;
  }, 0);
}

export function softmax(logits: number[], temperature = 1): number[] {
  const weights = logits.map((logit) => Math.exp(logit / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}
