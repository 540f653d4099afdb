import type { Scheduled } from "./step_part.ts";

const MOST_STEPS = 16;
/** Maximum milliseconds of one backend call: its tokens come in one burst, and a new request waits for its end. */
const BURST_MS = 100;

/** Chooses how many steps a backend that samples tokens itself computes per call. */
export class StepsAtOnce {
  /** Milliseconds of the last step. */
  #stepMs = Infinity;

  /** Returns more than 1 only if all sequences decode and need nothing else meanwhile. */
  choose(step: readonly Scheduled[]): number {
    const fitting = Math.floor(BURST_MS / this.#stepMs);
    return Math.max(1, Math.min(MOST_STEPS, fitting, ...step.map(stepsAlone)));
  }

  /** Records the duration of a call. */
  took(ms: number, steps: number): void {
    this.#stepMs = ms / steps;
  }
}

/** Returns how many steps a sequence can take without the scheduler: up to its last token or the next state snapshot. */
function stepsAlone({ sequence, rows, scores, samples, state }: Scheduled): number {
  const { draw } = sequence.sampler.logits;
  if (rows > 1 || scores > 0 || !samples || !draw || sequence.sampler.counts || sequence.sampler.dry) {
    return 1;
  }
  const untilEnd = Math.min(
    sequence.maxLength - sequence.length,
    Math.max(1, sequence.form?.ahead ?? Infinity),
  );
  if (!state) return untilEnd;
  if (state.read !== state.write || state.saves.length > 0) return 1;
  return Math.min(
    untilEnd,
    ...[...sequence.state?.snapshotEdges ?? []].map((edge) => edge - sequence.kv.cached - 1),
  );
}
