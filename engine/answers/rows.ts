import { EngineError } from "../api/errors.ts";

/**
 * Returns each text's tokens. An error about length gets the number of the text that is too long; for other errors,
 * `encode` must name the text.
 */
export function encodeAll<T>(
  texts: readonly T[],
  encode: (text: T, index: number) => readonly number[],
): (readonly number[])[] {
  return texts.map((text, index) => {
    try {
      return encode(text, index);
    } catch (error) {
      throw asText(error, texts.length > 1 ? `Text ${index}` : "The text");
    }
  });
}

/** Returns the error for an input text that is far too long. The error names the text and mentions no answer. */
function asText(error: unknown, which: string): unknown {
  if (!(error instanceof EngineError) || error.code !== "context_length_exceeded") return error;
  const { n_prompt_tokens: atLeast, n_ctx: most } = error.details;
  const message = `${which} has at least ${atLeast} tokens, but the context holds ${most}: shorten it`;
  return new EngineError(error.code, message, error.details);
}

/** Returns the first `dimensions` floats of a row, scaled to length 1. A row of zeros stays zero. */
export function normalized(row: Float32Array, dimensions = row.length): Float32Array {
  const part = row.subarray(0, dimensions);
  let squares = 0;
  for (const x of part) squares += x * x;
  const scale = squares > 0 ? 1 / Math.sqrt(squares) : 0;
  return part.map((x) => x * scale);
}

/** Returns the cosine of the angle between two rows. A row of zeros is similar to none. */
export function similarity(a: Float32Array, b: Float32Array): number {
  let [product, squaresA, squaresB] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    product += a[i] * b[i];
    squaresA += a[i] * a[i];
    squaresB += b[i] * b[i];
  }
  return squaresA > 0 && squaresB > 0 ? product / Math.sqrt(squaresA * squaresB) : 0;
}

/** Returns the probability of the only label of a head: the sigmoid of its logit. */
export function sigmoid(logit: number): number {
  return 1 / (1 + Math.exp(-logit));
}

/** Returns the probabilities of a head's labels: the softmax of their logits, or the sigmoid of the only one. */
export function probabilities(logits: Float32Array): number[] {
  if (logits.length === 1) return [sigmoid(logits[0])];
  const most = logits.reduce((a, b) => Math.max(a, b));
  const weights = Array.from(logits, (logit) => Math.exp(logit - most));
  const sum = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** Returns a document's relevance from 0 to 1: the probability of the first label. */
export function relevance(logits: Float32Array): number {
  return probabilities(logits)[0];
}
