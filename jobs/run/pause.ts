const LONGEST_TURN_MS = 8;

/**
 * Yields to the event loop now and then in long work whose reads resolve at once. Without it a loop keeps the event
 * loop busy however often it awaits, and requests to a server in the same process wait for its end.
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
