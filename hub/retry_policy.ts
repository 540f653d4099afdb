import { PullError, Transient } from "./errors.ts";

/** Rules for retries after failures. */
export interface Pace {
  /** Milliseconds of the first wait, doubled with each consecutive failure. */
  readonly baseMs?: number;
  /** Maximum milliseconds of a wait, unless a server asks for more. */
  readonly capMs?: number;
  /** Maximum consecutive failures before the first byte. */
  readonly attempts?: number;
  /** Maximum milliseconds without a byte, after the first one. */
  readonly totalMs?: number;
}

/** Maximum milliseconds of a wait that a server may ask for. */
const MAX_RETRY_AFTER_MS = 10 * 60_000;

/** Retries transient failures as long as bytes keep arriving from time to time. */
export class RetryPolicy {
  readonly #pace: Required<Pace>;
  readonly #note: (message: string) => void;
  #failures = 0;
  #began = false;
  #last = performance.now();

  constructor(pace: Pace = {}, note: (message: string) => void = () => {}) {
    this.#pace = { baseMs: 500, capMs: 15_000, attempts: 6, totalMs: 5 * 60_000, ...pace };
    this.#note = note;
  }

  /** Records that bytes arrived. */
  progress(): void {
    this.#began = true;
    this.#failures = 0;
    this.#last = performance.now();
  }

  /** Runs `work` until it succeeds or fails permanently. */
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

  /** Waits before the next attempt. Throws PullError after too many failures. */
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
    // The wait is randomized, so that clients that failed together do not return together.
    const ms = Math.max(asked, doubled * (0.5 + Math.random() / 2));
    if (ms >= 1000) this.#note(`${failure.message}; trying again in ${Math.round(ms / 1000)} s`);
    await sleep(ms, signal);
    this.#last += asked; // a wait that the server asked for does not count as a failure
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
