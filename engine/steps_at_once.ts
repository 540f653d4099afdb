import type { Scheduled } from "./scheduler.ts";

const MOST_STEPS = 16;
/** Milliseconds that steps may take together: tokens come in bursts of them, and whoever arrives waits for their end. */
const BURST_MS = 100;

/** How many steps a backend that draws tokens itself is to take before it is asked again. */
export class StepsAtOnce {
  /** What the last one took. */
  #stepMs = Infinity;

  /** More than one only where all sequences decode, and none will need anything else meanwhile. */
  choose(step: readonly Scheduled[]): number {
    const fitting = Math.floor(BURST_MS / this.#stepMs);
    return Math.max(1, Math.min(MOST_STEPS, fitting, ...step.map(stepsAlone)));
  }

  /** Learns what steps took. */
  took(ms: number, steps: number): void {
    this.#stepMs = ms / steps;
  }
}

/** Steps that a sequence can take without the scheduler: up to its last token, or a snapshot of its state. */
function stepsAlone({ sequence, rows, scores, samples, state }: Scheduled): number {
  const { draw } = sequence.logits;
  if (rows > 1 || scores > 0 || !samples || !draw || sequence.counts || sequence.dry) return 1;
  const untilEnd = Math.min(
    sequence.maxLength - sequence.length,
    Math.max(1, sequence.form?.ahead ?? Infinity),
  );
  if (!state) return untilEnd;
  if (state.read !== state.write || state.saves.length > 0) return 1;
  return Math.min(untilEnd, ...[...sequence.state!.marks].map((mark) => mark - sequence.cached - 1));
}
