import { type Candidates, type Draw, MAX_CANDIDATES } from "./backend/backend.ts";
import type { SamplingParams, TokenLogprob } from "./types.ts";

/**
 * From candidates to a token.
 *
 * The backend has applied penalties and bias already; then, in llama.cpp's order, top-k, top-p and min-p cut the
 * list by the model's own probabilities, and the temperature is applied to what is left. So a high temperature
 * makes the choice among the kept tokens bolder, but never lets more of the tail in. (At temperature 1, the
 * default, this is the same as vLLM's order, which scales first.)
 *
 * Only the MAX_CANDIDATES best tokens are ever considered: without top-k the tail beyond them, usually a few
 * thousandths of the probability, is never drawn.
 */

/** How many candidates the backend must return so that `sample` and `alternatives` can work. */
export function candidatesWanted(sampling: SamplingParams, logprobs: number): number {
  if (logprobs > 0 && adjustsLogits(sampling)) return MAX_CANDIDATES;
  if (sampling.temperature === 0) return Math.max(1, logprobs);
  if (sampling.topK > 0) return Math.min(MAX_CANDIDATES, Math.max(sampling.topK, logprobs));
  return MAX_CANDIDATES;
}

export function usesPenalties(sampling: SamplingParams): boolean {
  return sampling.repetitionPenalty !== 1 || sampling.presencePenalty !== 0 ||
    sampling.frequencyPenalty !== 0;
}

function adjustsLogits(sampling: SamplingParams): boolean {
  return sampling.logitBias.size > 0 || usesPenalties(sampling);
}

/** How a backend that draws tokens itself is to do it. Undefined where it cannot: penalties count what was drawn. */
export function drawOf(sampling: SamplingParams, random: Random, ends: Int32Array): Draw | undefined {
  if (usesPenalties(sampling)) return undefined;
  const { temperature, topK, topP, minP, logitBias } = sampling;
  const key = [random.next() * 2 ** 32, random.next() * 2 ** 32] as const;
  const massOfAll = topK === 0 && logitBias.size === 0;
  const whole = massOfAll && topP === 1 && minP === 0 && temperature > 0;
  return { temperature, topK: topK || MAX_CANDIDATES, topP, minP, whole, massOfAll, key, ends };
}

const weights = new Float64Array(MAX_CANDIDATES);

/**
 * The index of the chosen candidate. Draws one random number, or none at temperature 0. `masked`: the candidates are those of
 * a part of the vocabulary.
 */
export function sample(
  candidates: Candidates,
  sampling: SamplingParams,
  random: Random,
  masked = false,
): number {
  if (sampling.temperature === 0) return 0;
  const logits = candidates.logits;
  const kept = truncate(candidates, sampling, masked);
  let total = 0;
  for (let i = 0; i < kept; i++) {
    weights[i] = Math.exp((logits[i] - logits[0]) / sampling.temperature);
    total += weights[i];
  }
  const mark = random.next() * total;
  let sum = 0;
  for (let i = 0; i < kept; i++) {
    sum += weights[i];
    if (mark < sum) return i;
  }
  return 0;
}

/** How many of the best candidates top-k, top-p and min-p leave; at least one. */
export function truncate(candidates: Candidates, sampling: SamplingParams, masked = false): number {
  const { logits, logSumExp } = candidates;
  const best = logits[0];
  let kept = Math.min(logits.length, MAX_CANDIDATES);
  if (sampling.topK > 0) kept = Math.min(kept, sampling.topK);
  if (sampling.topP < 1) {
    // logSumExp is of the raw logits and of all tokens: the right total only where neither was changed.
    const whole = sampling.topK === 0 && !masked && !adjustsLogits(sampling);
    const total = whole ? Math.exp(logSumExp - best) : sumOfExp(logits, kept);
    const wanted = sampling.topP * total;
    let sum = 0;
    let count = 0;
    while (count < kept && sum < wanted) sum += Math.exp(logits[count++] - best);
    kept = Math.max(1, count);
  }
  if (sampling.minP > 0) {
    const least = best + Math.log(sampling.minP);
    while (kept > 1 && logits[kept - 1] < least) kept--;
  }
  return kept;
}

function sumOfExp(logits: Float32Array, count: number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += Math.exp(logits[i] - logits[0]);
  return sum;
}

/**
 * The `count` most probable tokens by the model's own (raw) logits. Where penalties or bias reorder the tokens,
 * they are the most probable of the MAX_CANDIDATES best after that.
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

/** xoshiro128** (Blackman and Vigna), seeded by splitmix32: 128 bits of state, one sequence's own. */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** Any safe integer; all its bits count. */
  constructor(seed: number) {
    const low = splitmix(seed | 0, 0x9e3779b9);
    const high = splitmix(Math.floor(seed / 2 ** 32) | 0, 0x85ebca6b);
    this.#a = low() ^ high();
    this.#b = low() ^ high();
    this.#c = low() ^ high();
    this.#d = (low() ^ high()) | 1; // never all zero
  }

  static unpredictable(): Random {
    const [low, high] = crypto.getRandomValues(new Uint32Array(2));
    return new Random((high & 0xfffff) * 2 ** 32 + low);
  }

  /** Uniform in [0, 1), in steps of 2^-32. */
  next(): number {
    const product = Math.imul(this.#b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9);
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return (result >>> 0) / 2 ** 32;
  }
}

/** splitmix32: well mixed numbers from a counter. */
function splitmix(state: number, increment: number): () => number {
  return () => {
    state = (state + increment) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return z ^ (z >>> 15);
  };
}

/** The tokens that penalties look at, counted as they come: no step ever walks the whole text again. */
export class TokenCounts {
  readonly #slots = new Map<number, number>();
  #tokens = new Int32Array(64);
  #counts = new Int32Array(64);

  /** A prompt's token is listed with count 0: only the repetition penalty sees it. */
  addPrompt(token: number): void {
    this.#slot(token);
  }

  addGenerated(token: number): void {
    this.#counts[this.#slot(token)]++;
  }

  /** Distinct tokens, in order of their first occurrence. */
  get tokens(): Int32Array {
    return this.#tokens.subarray(0, this.#slots.size);
  }

  /** How often each was generated. */
  get counts(): Int32Array {
    return this.#counts.subarray(0, this.#slots.size);
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
