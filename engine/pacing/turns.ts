/** Shares the event loop among the senders of long work. */

/** Milliseconds of work after which the event loop serves others for as long. */
export const SLICE_MS = 2;

interface Waiting {
  readonly sender: string;
  readonly start: () => void;
}

/**
 * Lets slices of work take turns. A sender's work runs at once until it has taken a slice's time. Then the loop serves
 * others for as long as the work took, before the next slice. The sender whose last turn was the longest ago continues first.
 */
export class Turns {
  /** In order of arrival. */
  readonly #waiting = new Set<Waiting>();
  /** The number of each sender's last turn, while any work waits. */
  readonly #last = new Map<string, number>();
  #turn = 0;
  /** Milliseconds of work since the loop served others: of each sender, and of all. */
  readonly #workedBy = new Map<string, number>();
  #worked = 0;
  #ended = 0;
  #servesOthers = false;

  /** Runs a slice when it is the sender's turn. The slice gets the time at which it should end. */
  async run<T>(sender: string, slice: (until: number) => T): Promise<T> {
    const workedBy = () => this.#workedBy.get(sender) ?? 0;
    if (workedBy() >= SLICE_MS) await new Promise<void>((start) => this.#waiting.add({ sender, start }));
    this.#last.set(sender, ++this.#turn);
    const begun = performance.now();
    if (!this.#servesOthers && begun - this.#ended > SLICE_MS) this.#forget();
    try {
      return slice(begun + SLICE_MS);
    } finally {
      this.#ended = performance.now();
      this.#workedBy.set(sender, workedBy() + this.#ended - begun);
      this.#worked += this.#ended - begun;
      if (this.#worked < SLICE_MS) this.#startNext();
      else if (!this.#servesOthers) this.#serveOthers(this.#ended + this.#worked);
    }
  }

  #forget(): void {
    this.#workedBy.clear();
    this.#worked = 0;
  }

  /** Lets the event loop serve others. A timer may come early, as it counts from the beginning of the loop's turn. */
  #serveOthers(until: number): void {
    this.#servesOthers = true;
    setTimeout(() => {
      if (performance.now() < until) return this.#serveOthers(until);
      this.#servesOthers = false;
      this.#forget();
      this.#startNext();
    }, Math.max(0, until - performance.now()));
  }

  #startNext(): void {
    if (this.#waiting.size === 0) return this.#last.clear();
    const last = ({ sender }: Waiting) => this.#last.get(sender) ?? 0;
    const next = [...this.#waiting].reduce((first, other) => last(other) < last(first) ? other : first);
    this.#waiting.delete(next);
    next.start();
  }
}

/** The turns of all work in this process. */
export const turns = new Turns();
