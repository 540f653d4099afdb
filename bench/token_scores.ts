/**
 * The arithmetic of perplexity and KL divergence. The definitions are llama.cpp's, so figures of both programs can be
 * compared.
 */

/** A model's score for one token of a text. */
export interface TokenScore {
  /** Negative log-likelihood of the token. */
  readonly nll: number;
  readonly reference?: ReferenceScore;
}

/** The token's score by a reference model, and the distance of the two distributions. */
export interface ReferenceScore {
  readonly nll: number;
  /** KL divergence of the model's distribution from the reference's, in nats. */
  readonly divergence: number;
  /** Whether both models have the same most probable token. */
  readonly sameTop: boolean;
}

/** A mean and its standard error. */
export interface Estimate {
  readonly value: number;
  readonly error: number;
}

export interface Divergence {
  /** The reference's perplexity. */
  readonly perplexity: Estimate;
  /** ln(perplexity / the reference's perplexity). */
  readonly logRatio: Estimate;
  readonly divergence: Estimate;
  /** The divergence at each percentile: at 0 the minimum of all tokens, at 100 the maximum. */
  readonly percentiles: readonly (readonly [percent: number, divergence: number])[];
  /** Share of the tokens for which both models have the same most probable token. */
  readonly sameTop: Estimate;
  /** Probability of the text's token minus the reference's, and the root of its mean square. */
  readonly difference: Estimate & { readonly rms: number };
}

const PERCENTS = [0, 1, 5, 10, 50, 90, 95, 99, 99.9, 100];

/** Compares two rows of logits over the same vocabulary. Sums are in double precision. */
export function compareRows(row: Float32Array, reference: Float32Array, token: number): TokenScore {
  const [top, referenceTop] = [indexOfLargest(row), indexOfLargest(reference)];
  let [sum, referenceSum, distance] = [0, 0, 0];
  for (let i = 0; i < row.length; i++) {
    sum += Math.exp(row[i] - row[top]);
    const weight = Math.exp(reference[i] - reference[referenceTop]);
    if (weight === 0) continue; // both logits may be -infinity
    referenceSum += weight;
    distance += weight * (reference[i] - row[i]);
  }
  const logSumExp = row[top] + Math.log(sum);
  const referenceLogSumExp = reference[referenceTop] + Math.log(referenceSum);
  return {
    nll: logSumExp - row[token],
    reference: {
      nll: referenceLogSumExp - reference[token],
      divergence: distance / referenceSum + logSumExp - referenceLogSumExp,
      sameTop: top === referenceTop,
    },
  };
}

function indexOfLargest(row: Float32Array): number {
  let best = 0;
  for (let i = 1; i < row.length; i++) {
    if (row[i] > row[best]) best = i;
  }
  return best;
}

export function perplexityOf(nlls: readonly number[]): Estimate {
  const { value, error } = estimate(nlls);
  const perplexity = Math.exp(value);
  return { value: perplexity, error: perplexity * error };
}

/** Returns the figures of a comparison; undefined without a reference. */
export function divergenceOf(scores: readonly TokenScore[]): Divergence | undefined {
  const pairs = scores.flatMap(({ nll, reference }) => reference ? [{ ...reference, own: nll }] : []);
  if (pairs.length === 0) return undefined;
  const sorted = pairs.map(({ divergence }) => divergence).sort((a, b) => a - b);
  const differences = pairs.map(({ own, nll }) => Math.exp(-own) - Math.exp(-nll));
  return {
    perplexity: perplexityOf(pairs.map(({ nll }) => nll)),
    logRatio: estimate(pairs.map(({ own, nll }) => own - nll)),
    divergence: estimate(sorted),
    percentiles: PERCENTS.map((percent) => [percent, percentile(sorted, percent)] as const),
    sameTop: estimate(pairs.map(({ sameTop }) => sameTop ? 1 : 0)),
    difference: { ...estimate(differences), rms: Math.sqrt(mean(differences.map((x) => x * x))) },
  };
}

/** Returns the mean and its standard error, which is 0 for one value. */
export function estimate(values: readonly number[]): Estimate {
  const value = mean(values);
  const variance = mean(values.map((x) => (x - value) ** 2));
  return { value, error: values.length > 1 ? Math.sqrt(variance / (values.length - 1)) : 0 };
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, x) => sum + x, 0) / values.length;
}

/** Returns a percentile of ascending values; between two values it interpolates. */
function percentile(sorted: readonly number[], percent: number): number {
  const place = percent / 100 * (sorted.length - 1);
  const below = Math.floor(place);
  return sorted[below] + (place - below) * (sorted[Math.ceil(place)] - sorted[below]);
}
