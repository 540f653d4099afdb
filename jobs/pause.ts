const LONGEST_TURN_MS = 8;

/**
 * Lets others have their turn now and then in long work whose reads are answered at once: such a loop keeps the event
 * loop to itself, however often it awaits, and requests to a server in the same process would wait for its end.
 */
export class Pause {
  private since = performance.now();

  /** Returns at once unless this turn has been long. */
  async now(): Promise<void> {
    if (performance.now() - this.since < LONGEST_TURN_MS) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.since = performance.now();
  }
}
