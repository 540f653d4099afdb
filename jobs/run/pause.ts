const LONGEST_TURN_MS = 8;

/**
 * Yields to the event loop from time to time during long work. Otherwise a loop whose awaited reads resolve at once
 * would block requests to a server in the same process.
 */
export class Pause {
  private since = performance.now();

  /** Yields if the current turn has been long; otherwise returns at once. */
  async now(): Promise<void> {
    if (performance.now() - this.since < LONGEST_TURN_MS) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.since = performance.now();
  }
}
