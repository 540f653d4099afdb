const TICK_MS = 50;

/**
 * Milliseconds during which this process was able to read what clients had sent: while it is held up (a long prompt is
 * tokenised, the machine is busy) the clock stands still, so that no client pays for it.
 */
export class Clock {
  now = 0;
  readonly #timer: ReturnType<typeof setInterval>;

  /** `tick` is called whenever the clock moves: every 50 ms, or more often. */
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
