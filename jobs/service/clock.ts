/** Minimum seconds of a jump of the clock; smaller differences are drift and corrections. */
const MIN_JUMP_SECONDS = 60;
/** Date before which the clock was never set, because this program is newer. */
const SET_MS = Date.UTC(2025);

/** Returns false for a time in Unix milliseconds that was read from a clock that was not set. */
export function isSet(ms: number): boolean {
  return ms >= SET_MS;
}

/**
 * Returns Unix milliseconds of a steady clock: it starts with the system's time and then counts elapsed time, so
 * nobody can set it.
 */
export function steadyClock(): () => number {
  const began = Date.now() - performance.now();
  return () => began + performance.now();
}

/** Returns the seconds to add to the times of a record, which was created at `createdAt` by the old clock. */
export type Shift = (createdAt: number) => number;

/**
 * Detects that the system's clock was set, so that files and batches do not expire because of the jump. If a machine
 * has no battery for its clock, the clock starts in 1970 and jumps when the network sets it. Times are Unix seconds.
 */
export class ClockWatch {
  /** Seconds by which the system's clock is ahead of the steady clock. */
  #ahead: number;
  #hasStarted = false;

  constructor(private readonly now: () => number, private readonly steady: () => number) {
    this.#ahead = now() - steady();
  }

  /**
   * Calls `apply` if the clock was set since the last call, or if an earlier process may have created records before
   * the clock was set. If `apply` throws, this call throws too, and the next call tries again.
   */
  follow(apply: (shift: Shift) => void): void {
    const now = this.now();
    if (!this.#hasStarted && isSet(1000 * now)) {
      apply((createdAt) => isSet(1000 * createdAt) ? 0 : now - createdAt);
    }
    this.#hasStarted = true;
    const steady = this.steady();
    const expected = steady + this.#ahead;
    const seconds = Math.round(now - expected);
    if (Math.abs(seconds) >= MIN_JUMP_SECONDS) {
      // If the old clock had not reached the record's time, the record was created before that clock was wrong.
      apply((createdAt) => (seconds > 0 ? createdAt <= expected : createdAt > now) ? seconds : 0);
    }
    this.#ahead = now - steady;
  }
}
