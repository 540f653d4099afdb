const TICK_MS = 50;

/**
 * A clock in milliseconds that runs only while this process can read from clients. It stands still while the process is
 * blocked (tokenizing a long prompt, a busy machine), so that clients are not timed out for that.
 */
export class Clock {
  now = 0;
  readonly #timer: ReturnType<typeof setInterval>;

  /** `tick` is called each time the clock moves: every 50 ms, or more often. */
  constructor(tick: () => void, tickMs = TICK_MS) {
    const step = Math.min(tickMs, TICK_MS);
    let last = performance.now();
    this.#timer = setInterval(() => {
      const real = performance.now();
      this.now += Math.min(real - last, 2 * step);
      last = real;
      tick();
    }, step);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
