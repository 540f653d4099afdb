import { type Candidates, MAX_CANDIDATES } from "../backend/backend.ts";
import type { Random } from "./random.ts";
import type { SamplingParams } from "../api/sampling.ts";

/**
 * Chooses the candidates that may be drawn. Each sampler truncates the result of the previous one, by the
 * probabilities before the temperature, in this order: top-n-sigma, top-k, typical-p, top-p, min-p, XTC.
 */

const kept = new Int32Array(MAX_CANDIDATES);
const probabilities = new Float64Array(MAX_CANDIDATES);
const surprise = new Float64Array(MAX_CANDIDATES);

/** Returns whether nothing is truncated, so that every token of the vocabulary may be drawn. */
export function keepsAll(sampling: SamplingParams): boolean {
  return sampling.topK === 0 && sampling.topP === 1 && sampling.minP === 0 && isSimple(sampling);
}

/** Returns whether only top-k, top-p and min-p truncate; backends can apply these themselves. */
export function isSimple({ topNSigma, typicalP, xtcProbability }: SamplingParams): boolean {
  return topNSigma === 0 && typicalP === 1 && xtcProbability === 0;
}

/**
 * Returns the indices of the surviving candidates, best first. Never empty. Valid until the next call. With XTC it
 * draws one random number. `total`: the sum of e^(logit - best) over the vocabulary, if known.
 */
export function truncate(
  candidates: Candidates,
  sampling: SamplingParams,
  random: Random,
  total?: number,
): Int32Array {
  const { logits, deviation } = candidates;
  const { topNSigma, topK, typicalP, topP, minP, xtcProbability } = sampling;
  let count = Math.min(logits.length, MAX_CANDIDATES);
  for (let i = 0; i < count; i++) kept[i] = i;
  if (topNSigma > 0) count = above(logits, count, logits[0] - topNSigma * deviation);
  if (topK > 0) count = Math.min(count, topK);
  if (typicalP < 1) count = typical(logits, count, typicalP);
  if (topP < 1) {
    const all = topNSigma === 0 && topK === 0 && typicalP === 1 ? total : undefined;
    count = nucleus(logits, count, topP, all);
  }
  if (minP > 0) count = above(logits, count, logits[kept[0]] + Math.log(minP));
  if (xtcProbability > 0) count = excludeTop(logits, count, sampling, random);
  return kept.subarray(0, count);
}

/** Returns the number of candidates above a bound, for top-n-sigma (arXiv 2411.07641) and min-p (arXiv 2407.01082). */
function above(logits: Float32Array, count: number, least: number): number {
  while (count > 1 && logits[kept[count - 1]] < least) count--;
  return count;
}

/** Returns the number of best tokens that reach a share `topP` of the probability. Source: top-p (arXiv 1904.09751). */
function nucleus(logits: Float32Array, count: number, topP: number, total?: number): number {
  const best = logits[kept[0]];
  const wanted = topP * (total ?? softmax(logits, count));
  let sum = 0;
  let n = 0;
  while (n < count && sum < wanted) sum += Math.exp(logits[kept[n++]] - best);
  return Math.max(1, n);
}

/**
 * Locally typical sampling (arXiv 2202.00666): keeps the tokens whose surprise, -log p, is nearest to the entropy,
 * until they reach a share `typicalP` of the probability. Returns how many it keeps.
 */
function typical(logits: Float32Array, count: number, typicalP: number): number {
  const total = softmax(logits, count);
  let entropy = 0;
  for (let i = 0; i < count; i++) {
    probabilities[i] /= total;
    if (probabilities[i] > 0) entropy -= probabilities[i] * Math.log(probabilities[i]);
  }
  for (let i = 0; i < count; i++) surprise[i] = Math.abs(-Math.log(probabilities[i]) - entropy);
  const order = kept.subarray(0, count).map((_, i) => i).sort((a, b) => surprise[a] - surprise[b] || a - b);
  let sum = 0;
  let n = 0;
  while (n < count && sum < typicalP) sum += probabilities[order[n++]];
  const chosen = order.subarray(0, Math.max(1, n)).sort();
  for (let i = 0; i < chosen.length; i++) kept[i] = kept[chosen[i]]; // ascending, so no entry is read too late
  return chosen.length;
}

/** XTC, "exclude top choices": at random, removes all tokens above the threshold except the least probable one. */
function excludeTop(
  logits: Float32Array,
  count: number,
  { xtcProbability, xtcThreshold }: SamplingParams,
  random: Random,
): number {
  if (random.next() >= xtcProbability) return count;
  const total = softmax(logits, count);
  let top = 0;
  while (top < count && probabilities[top] >= xtcThreshold * total) top++;
  if (top < 2) return count;
  kept.copyWithin(0, top - 1, count);
  return count - (top - 1);
}

/** Fills `probabilities` with e^(logit - best) of the kept candidates. Returns their sum. */
function softmax(logits: Float32Array, count: number): number {
  let total = 0;
  for (let i = 0; i < count; i++) {
    total += probabilities[i] = Math.exp(logits[kept[i]] - logits[kept[0]]);
  }
  return total;
}
