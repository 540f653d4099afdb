/** Number of ticks that the time limit is divided into. */
const TICKS = 30;

/**
 * Rejects promises that take too long. One timer serves all promises and keeps running: every step waits for masks, and
 * starting a timer costs as much as processing a token.
 */
export class TimeLimit {
  /** Callbacks that reject a promise, with the ticks left before each is called. */
  readonly #waiting = new Map<() => void, number>();
  #timer: ReturnType<typeof setInterval> | undefined;

  /** `ms`: time limit of each promise, accurate to a thirtieth of it. */
  constructor(private readonly ms: number) {}

  /**
   * Settles as `promise` does, or rejects with the text of `failure` after the time limit. Time in which the process or
   * machine is suspended does not count.
   */
  within<T>(promise: Promise<T>, failure: (seconds: number) => string): Promise<T> {
    const late = Promise.withResolvers<T>();
    const giveUp = () => late.reject(new Error(failure(this.ms / 1000)));
    this.#waiting.set(giveUp, TICKS);
    this.#timer ??= setInterval(() => this.#tick(), this.ms / TICKS);
    promise.then(late.resolve, late.reject).finally(() => this.#waiting.delete(giveUp));
    return late.promise;
  }

  /** Stops the timer. Pending promises are no longer rejected. */
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
