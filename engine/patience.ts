/** Parts that the time is counted in. */
const TICKS = 30;

/**
 * Rejects what takes too long. One timer serves all who wait, and keeps running from one to the next: each step waits for its masks,
 * and a timer costs as much as taking a token.
 */
export class Patience {
  /** How to give up each, and after how many ticks. */
  readonly #waiting = new Map<() => void, number>();
  #timer: ReturnType<typeof setInterval> | undefined;

  /** `ms`: how long each may take, to within a thirtieth. */
  constructor(private readonly ms: number) {}

  /**
   * As the promise settles; rejected with an error of that text where it does not in time. Counts the time in which the process
   * runs: one that was stopped, or whose machine slept, has computed nothing meanwhile.
   */
  within<T>(promise: Promise<T>, failure: (seconds: number) => string): Promise<T> {
    const late = Promise.withResolvers<T>();
    const giveUp = () => late.reject(new Error(failure(this.ms / 1000)));
    this.#waiting.set(giveUp, TICKS);
    this.#timer ??= setInterval(() => this.#tick(), this.ms / TICKS);
    promise.then(late.resolve, late.reject).finally(() => this.#waiting.delete(giveUp));
    return late.promise;
  }

  /** Stops the timer; who still waits is not given up any more. */
  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #tick(): void {
    if (this.#waiting.size === 0) return this.close();
    for (const [giveUp, ticks] of this.#waiting) {
      this.#waiting.set(giveUp, ticks - 1);
      if (ticks === 1) giveUp();
    }
  }
}
