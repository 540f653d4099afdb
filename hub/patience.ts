import { PullError, Transient } from "./errors.ts";

/** How long failures are borne with. */
export interface Pace {
  /** First wait, doubled with each failure in a row. */
  readonly baseMs?: number;
  /** Longest wait, but for those that a server asks for. */
  readonly capMs?: number;
  /** Failures in a row before the first byte has come. */
  readonly attempts?: number;
  /** Milliseconds without a byte, once some have come. */
  readonly totalMs?: number;
}

/** Longest wait that a server may ask for. */
const MAX_RETRY_AFTER_MS = 10 * 60_000;

/** Tries again what failed for a moment, as long as something comes at times. */
export class Patience {
  readonly #pace: Required<Pace>;
  readonly #note: (message: string) => void;
  #failures = 0;
  #began = false;
  #last = performance.now();

  constructor(pace: Pace = {}, note: (message: string) => void = () => {}) {
    this.#pace = { baseMs: 500, capMs: 15_000, attempts: 6, totalMs: 5 * 60_000, ...pace };
    this.#note = note;
  }

  /** Something came. */
  progress(): void {
    this.#began = true;
    this.#failures = 0;
    this.#last = performance.now();
  }

  /** Runs `work` until it succeeds, or fails for good. */
  async retry<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    while (true) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof Transient)) throw error;
        await this.wait(error, signal);
      }
    }
  }

  /** Waits before the next try. Throws PullError where enough has been tried. */
  async wait(failure: Transient, signal?: AbortSignal): Promise<void> {
    const { baseMs, capMs, attempts, totalMs } = this.#pace;
    this.#failures++;
    const asked = failure.waitMs ?? 0;
    const since = performance.now() - this.#last;
    if (asked > MAX_RETRY_AFTER_MS) {
      throw new PullError(
        "PULL_NETWORK",
        `${failure.message} and asks for a wait of ${
          Math.ceil(asked / 60_000)
        } minutes: the same command resumes then`,
      );
    }
    const enough = this.#began
      ? since > totalMs || this.#failures > 8 * attempts
      : this.#failures >= attempts;
    if (enough) {
      const tried = `tried ${this.#failures} times in ${(since / 1000).toFixed(0)} s`;
      throw new PullError(
        "PULL_NETWORK",
        `The download failed: ${failure.message} (${tried}); the same command resumes it`,
      );
    }
    const doubled = Math.min(capMs, baseMs * 2 ** Math.min(this.#failures - 1, 16));
    // Spread, so that many who failed at once do not come back at once.
    const ms = Math.max(asked, doubled * (0.5 + Math.random() / 2));
    if (ms >= 1000) this.#note(`${failure.message}; trying again in ${Math.round(ms / 1000)} s`);
    await sleep(ms, signal);
    this.#last += asked; // a wait that was asked for is nobody's failure
  }
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
