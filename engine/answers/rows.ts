import { EngineError } from "../types.ts";

/** Milliseconds that texts may be encoded for without a break: other requests are answered in between. */
const MOST_MS = 8;

/** The tokens of many texts. `encode` names the text where it throws. */
export async function encodeAll<T>(
  texts: readonly T[],
  encode: (text: T, index: number) => readonly number[],
): Promise<(readonly number[])[]> {
  const tokens: (readonly number[])[] = [];
  let began = performance.now();
  for (const [index, text] of texts.entries()) {
    try {
      tokens.push(encode(text, index));
    } catch (error) {
      throw asText(error, texts.length > 1 ? `Text ${index}` : "The text");
    }
    if (performance.now() - began < MOST_MS) continue;
    await new Promise((resolve) => setTimeout(resolve));
    began = performance.now();
  }
  return tokens;
}

/** Far too long a text is refused while it is encoded, as a prompt is: but it is one of several here, and there is no answer. */
function asText(error: unknown, which: string): unknown {
  if (!(error instanceof EngineError) || error.code !== "context_length_exceeded") return error;
  const { n_prompt_tokens: atLeast, n_ctx: most } = error.details;
  const message = `${which} has at least ${atLeast} tokens, but the context holds ${most}: shorten it`;
  return new EngineError(error.code, message, error.details);
}

/** The first floats of a row, with length 1. A row of zeros stays one. */
export function normalized(row: Float32Array, dimensions = row.length): Float32Array {
  const part = row.subarray(0, dimensions);
  let squares = 0;
  for (const x of part) squares += x * x;
  const scale = squares > 0 ? 1 / Math.sqrt(squares) : 0;
  return part.map((x) => x * scale);
}

/**
 * How relevant a document is, from 0 to 1: the probability of the first label of several, or of the only one.
 */
export function relevance(logits: Float32Array): number {
  if (logits.length === 1) return 1 / (1 + Math.exp(-logits[0]));
  const most = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
  return Math.exp(logits[0] - most) / sum;
}
