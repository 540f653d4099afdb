import type { Scheduled } from "./step_part.ts";

const MOST_STEPS = 16;
/** Maximum milliseconds of one backend call: its tokens come in one burst, and a new request waits for the call. */
const BURST_MS = 100;

/** Chooses the number of steps per call, for a backend that samples tokens itself. */
export class StepsAtOnce {
  /** Duration of the last step in milliseconds. */
  #stepMs = Infinity;

  /**
   * Returns the number of steps for the next call; more than 1 only if all sequences decode and need nothing else
   * meanwhile.
   */
  choose(step: readonly Scheduled[]): number {
    const fitting = Math.floor(BURST_MS / this.#stepMs);
    return Math.max(1, Math.min(MOST_STEPS, fitting, ...step.map(stepsAlone)));
  }

  /** Records the duration of a call of `steps` steps. */
  took(ms: number, steps: number): void {
    this.#stepMs = ms / steps;
  }
}

/**
 * Returns the number of steps that a sequence can take without the scheduler: up to its last token or next state
 * snapshot.
 */
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
