const TICK_MS = 50;

/**
 * A clock in milliseconds that stops while this process is blocked (a long prompt, a busy machine), so that clients do
 * not time out because of the server.
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
