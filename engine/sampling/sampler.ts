import { type Candidates, type Draw, MAX_CANDIDATES } from "../backend/backend.ts";
import type { Random } from "./random.ts";
import { isSimple, keepsAll, truncate } from "./truncation.ts";
import type { TokenLogprob } from "../api/events.ts";
import type { SamplingParams } from "../api/sampling.ts";

/**
 * Chooses a token from candidates.
 *
 * The backend has already applied penalties, bias and mask. Without truncation, the backend also draws from the whole
 * vocabulary (`Draw.whole`).
 *
 * Otherwise the MAX_CANDIDATES best tokens are considered. truncation.ts cuts them by the model's own probabilities,
 * in llama.cpp's order, and then the temperature applies to the rest. A high temperature thus flattens the choice
 * among the kept tokens, but never adds tokens of the tail. At temperature 1, the default, this equals vLLM's order,
 * which scales first.
 */

/** Returns the number of candidates that `alternatives` and `sample` need, or the backend if it `draws`. */
export function candidatesWanted(sampling: SamplingParams, logprobs: number, draws = false): number {
  if (logprobs > 0 && adjustsLogits(sampling)) return MAX_CANDIDATES;
  if (sampling.temperature === 0 || draws) return Math.max(1, logprobs);
  if (sampling.topK > 0) return Math.min(MAX_CANDIDATES, Math.max(sampling.topK, logprobs));
  return MAX_CANDIDATES;
}

export function usesPenalties(sampling: SamplingParams): boolean {
  return sampling.repetitionPenalty !== 1 || sampling.presencePenalty !== 0 ||
    sampling.frequencyPenalty !== 0;
}

function adjustsLogits(sampling: SamplingParams): boolean {
  return sampling.logitBias.size > 0 || usesPenalties(sampling) || sampling.dryMultiplier > 0;
}

/**
 * Returns how the backend draws the tokens; undefined if `sample` draws them. Every backend can draw from the whole
 * vocabulary. A backend that computes several steps per call also draws from candidates, if earlier draws do not
 * affect later ones.
 */
export function drawOf(
  sampling: SamplingParams,
  random: Random,
  ends: Int32Array,
  { severalSteps, masked }: { severalSteps: boolean; masked: boolean },
): Draw | undefined {
  const { temperature, topK, topP, minP } = sampling;
  const whole = temperature > 0 && keepsAll(sampling);
  const fixed = !usesPenalties(sampling) && sampling.dryMultiplier === 0;
  if (!whole && !(severalSteps && fixed && isSimple(sampling))) return undefined;
  const key = [random.next() * 2 ** 32, random.next() * 2 ** 32] as const;
  const massOfAll = topK === 0 && !adjustsLogits(sampling) && !masked;
  return { temperature, topK: topK || MAX_CANDIDATES, topP, minP, whole, massOfAll, key, ends };
}

const weights = new Float64Array(MAX_CANDIDATES);

/**
 * Returns the index of the chosen candidate; at temperature 0 the best. `masked`: a mask has excluded tokens. Each
 * token consumes the same number of random numbers.
 */
export function sample(
  candidates: Candidates,
  sampling: SamplingParams,
  random: Random,
  masked = false,
): number {
  if (sampling.temperature === 0) return 0;
  const { logits, logSumExp } = candidates;
  // logSumExp belongs to the raw logits, so it is the right total only if they were not changed.
  const all = masked || adjustsLogits(sampling) ? undefined : Math.exp(logSumExp - logits[0]);
  const kept = truncate(candidates, sampling, random, all);
  let total = 0;
  for (const [i, index] of kept.entries()) {
    weights[i] = Math.exp((logits[index] - logits[kept[0]]) / sampling.temperature);
    total += weights[i];
  }
  const mark = random.next() * total;
  let sum = 0;
  for (const [i, index] of kept.entries()) {
    sum += weights[i];
    if (mark < sum) return index;
  }
  return kept[0];
}

/**
 * Returns the `count` most probable tokens by the model's own (raw) logits. Only the MAX_CANDIDATES best after
 * penalties and biases are considered, so a more probable token may be missing.
 */
export function alternatives(candidates: Candidates, count: number): TokenLogprob[] {
  const { ids, rawLogits, logSumExp } = candidates;
  const best: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    const rank = best.findLastIndex((other) => rawLogits[other] >= rawLogits[i]) + 1;
    if (rank >= count) continue;
    best.splice(rank, 0, i);
    if (best.length > count) best.pop();
  }
  return best.map((i) => ({ token: ids[i], logprob: rawLogits[i] - logSumExp }));
}

/** Counts the tokens for penalties as they are generated, so that no step scans the whole text again. */
export class TokenCounts {
  readonly #slots = new Map<number, number>();
  #tokens = new Int32Array(64);
  #counts = new Int32Array(64);

  /** Adds a prompt token with count 0: only the repetition penalty applies to prompt tokens. */
  addPrompt(token: number): void {
    this.#slot(token);
  }

  addGenerated(token: number): void {
    const slot = this.#slot(token); // #slot may replace the arrays
    this.#counts[slot]++;
  }

  /** Distinct tokens of the text, in order of first occurrence. */
  get tokens(): Int32Array {
    return this.#tokens.subarray(0, this.#slots.size);
  }

  /** Number of times each distinct token was generated. */
  get counts(): Int32Array {
    return this.#counts.subarray(0, this.#slots.size);
  }

  /** Returns the tokens and counts as if `generated` had been generated too. */
  with(generated: Int32Array): { tokens: Int32Array; counts: Int32Array } {
    const known = this.#slots.size;
    const tokens = new Int32Array(known + generated.length);
    const counts = new Int32Array(known + generated.length);
    tokens.set(this.tokens);
    counts.set(this.counts);
    let end = known;
    for (const token of generated) {
      let slot = this.#slots.get(token) ?? tokens.subarray(0, end).indexOf(token, known);
      if (slot < 0) tokens[slot = end++] = token;
      counts[slot]++;
    }
    return { tokens: tokens.subarray(0, end), counts: counts.subarray(0, end) };
  }

  #slot(token: number): number {
    const known = this.#slots.get(token);
    if (known !== undefined) return known;
    const slot = this.#slots.size;
    if (slot === this.#tokens.length) {
      this.#tokens = doubled(this.#tokens);
      this.#counts = doubled(this.#counts);
    }
    this.#tokens[slot] = token;
    this.#slots.set(token, slot);
    return slot;
  }
}

function doubled(values: Int32Array): Int32Array<ArrayBuffer> {
  const copy = new Int32Array(values.length * 2);
  copy.set(values);
  return copy;
}
