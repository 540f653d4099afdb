/** Differences below this are drift and small corrections of the clock. */
const MIN_JUMP_SECONDS = 60;
/** A clock before this date was never set: this program is newer. */
const SET_MS = Date.UTC(2025);

/** Returns false for a time, in Unix milliseconds, of a clock that was not set. */
export function isSet(ms: number): boolean {
  return ms >= SET_MS;
}

/** Returns Unix milliseconds of a clock that starts with the system's time and then only counts: nobody can set it. */
export function steadyClock(): () => number {
  const began = Date.now() - performance.now();
  return () => began + performance.now();
}

/** Returns how many seconds to add to the times of a record, given when it was created by the old clock. */
export type Shift = (createdAt: number) => number;

/**
 * Notices that the system's clock was set, so that nothing expires by that. A machine without a battery for its clock
 * starts in 1970 and jumps when the network tells it the time. Times are Unix seconds.
 */
export class ClockWatch {
  /** How far the system's clock is ahead of the steady one. */
  #ahead: number;
  #hasStarted = false;

  constructor(private readonly now: () => number, private readonly steady: () => number) {
    this.#ahead = now() - steady();
  }

  /**
   * Calls `apply` if the clock was set since the last call, or if an earlier process may have created records before the
   * clock was set. If `apply` throws, so does this, and the next call tries again.
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
      // A record with a time that the old clock had not reached is from before that clock was wrong.
      apply((createdAt) => (seconds > 0 ? createdAt <= expected : createdAt > now) ? seconds : 0);
    }
    this.#ahead = now - steady;
  }
}
