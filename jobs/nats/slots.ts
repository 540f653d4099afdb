/** Places for lines that a worker answers at once. Who waits for one gets it in turn, so that no run is left out. */
export class Slots {
  private readonly queue: (() => void)[] = [];
  private freed = Promise.withResolvers<void>();

  constructor(public free: number) {}

  /** Takes a place, at once where there is one. Whoever has it gives it back. */
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

  /** Resolves when there is a free place, or at `wake`. */
  async room(): Promise<void> {
    if (this.free === 0) await this.freed.promise;
  }

  wake(): void {
    this.freed.resolve();
    this.freed = Promise.withResolvers();
  }
}
