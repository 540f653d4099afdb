/**
 * Places for the lines that a worker answers at once. Callers get free places in order of arrival, so every run gets
 * some.
 */
export class Slots {
  private readonly queue: (() => void)[] = [];
  private freed = Promise.withResolvers<void>();

  constructor(public free: number) {}

  /** Takes a place, or waits for one. The caller must return it. */
  async take(): Promise<void> {
    if (this.free > 0) this.free -= 1;
    else await new Promise<void>((resolve) => this.queue.push(resolve));
  }

  giveBack(): void {
    const next = this.queue.shift();
    if (next !== undefined) return next();
    this.free += 1;
    this.wake();
  }

  /** Resolves when a place is free, or when `wake` is called. */
  async room(): Promise<void> {
    if (this.free === 0) await this.freed.promise;
  }

  wake(): void {
    this.freed.resolve();
    this.freed = Promise.withResolvers();
  }
}
