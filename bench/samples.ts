import type { EvenStep } from "./floors.ts";
import { MAX_ROWS } from "../engine/load/size.ts";

/** A workload with its repeated measurements. */
export interface Sample {
  readonly work: "prefill" | "decode" | "decode, shared" | "texts" | "image";
  readonly sequences: number;
  /** Tokens per sequence: at the end of a prefill, or the mean over a decode. For an image: its number of patches. */
  readonly context: number;
  /** Number of tokens over all sequences. For an image: the number of rows that the decoder reads. */
  readonly tokens: number;
  readonly seconds: number[];
  readonly steps: readonly EvenStep[];
}

/** Returns the prefill of one sequence's prompt. */
export function prefillSample(context: number): Sample {
  const steps: EvenStep[] = [];
  for (let cached = 0; cached < context; cached += MAX_ROWS) {
    const rows = Math.min(MAX_ROWS, context - cached);
    steps.push({ sequences: 1, rows, cached, logitRows: cached + rows === context ? 1 : 0 });
  }
  return { work: "prefill", sequences: 1, context, tokens: context, seconds: [], steps };
}

/** Returns the prefill of several prompts. Each step takes the maximum number that fits. */
export function togetherSample(sequences: number, context: number): Sample {
  const fit = Math.max(1, Math.floor(MAX_ROWS / context));
  const steps: EvenStep[] = [];
  for (let first = 0; first < sequences; first += fit) {
    const count = Math.min(fit, sequences - first);
    steps.push({ sequences: count, rows: context, cached: 0, logitRows: count });
  }
  return { work: "prefill", sequences, context, tokens: sequences * context, seconds: [], steps };
}

/** Returns the encoding of whole texts. Each step takes the maximum number that fits. */
export function textsSample(texts: number, tokens: number): Sample {
  const steps = togetherSample(texts, tokens).steps.map((step) => ({ ...step, logitRows: 0 }));
  return { work: "texts", sequences: texts, context: tokens, tokens: texts * tokens, seconds: [], steps };
}

/**
 * Returns a sample without times: each sequence decodes `tokens` tokens after `context` tokens, one per step. The
 * sequences share their first `shared` tokens.
 */
export function decodeSample(sequences: number, context: number, tokens: number, shared = 0): Sample {
  const steps = Array.from(
    { length: tokens },
    (_, i): EvenStep => ({ sequences, rows: 1, cached: context + i, logitRows: sequences, shared }),
  );
  const mean = Math.round(context + (tokens + 1) / 2);
  const work = shared > 0 ? "decode, shared" : "decode";
  return { work, sequences, context: mean, tokens: sequences * tokens, seconds: [], steps };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Returns a sample's seconds per token, divided by those of the first sample plus the computed cost of the additional
 * attention.
 */
export function overPaper(sample: Sample, first: Sample, attention: (step: EvenStep) => number): number {
  const ofToken = ({ steps, tokens }: Sample) =>
    steps.reduce((sum, step) => sum + attention(step), 0) / tokens;
  const took = ({ seconds, tokens }: Sample) => median(seconds) / tokens;
  return took(sample) / (took(first) + ofToken(sample) - ofToken(first));
}
