export interface PaceOptions {
  /** Number of lines in progress at the start. */
  readonly from: number;
  /** Maximum number of lines in progress. */
  readonly to: number;
  /** Clock in milliseconds. */
  readonly now?: () => number;
}

const GROWTH = 1.5;
/** Growth of throughput that justifies more lines in progress: less is noise, and lines take memory. */
const GAIN = 1.05;
const SHORTEST_MS = 4000;
/** Number of measurements at a good level after which a higher one is tried: later lines of a file may differ. */
const TRUSTED = 32;

/**
 * Finds the number of lines in progress with the best throughput: it increases the number while throughput grows. The
 * first `limit` answers at a new level are ignored, because they began at the old one; the next twice as many are
 * measured.
 */
export class Pace {
  /** Number of lines that may be in progress now. */
  limit: number;
  private readonly now: () => number;
  private best = { limit: 0, rate: 0 };
  private trust = 0;
  private answers = 0;
  private work = 0;
  private since = 0;
  private readonly waiting: { place: number; go: () => void }[] = [];

  constructor(private readonly options: PaceOptions) {
    this.limit = Math.min(options.from, options.to);
    this.now = options.now ?? (() => performance.now());
  }

  /** Resolves when the lane with this index (from 0) may take a line. */
  turn(place: number): Promise<void> {
    if (place < this.limit) return Promise.resolve();
    return new Promise((go) => this.waiting.push({ place, go }));
  }

  /** Lets all waiting lanes through. */
  end(): void {
    this.limit = Infinity;
    this.release();
  }

  /** Counts an answer; `work`: its size, in any unit. */
  answered(work: number): void {
    if (this.limit >= this.options.to && this.best.limit === 0) return; // the limit is fixed
    this.answers += 1;
    if (this.answers === this.limit) this.since = this.now();
    if (this.answers <= this.limit) return;
    this.work += work;
    const ms = this.now() - this.since;
    if (this.answers < 3 * this.limit || ms < SHORTEST_MS) return;
    this.choose(this.work / ms);
    this.answers = this.work = 0;
    this.release();
  }

  private choose(rate: number): void {
    if (this.limit === this.best.limit) {
      this.best = { limit: this.limit, rate };
      this.trust -= 1;
    } else if (rate > GAIN * this.best.rate) {
      this.best = { limit: this.limit, rate };
      this.trust = 0;
    } else {
      this.limit = this.best.limit;
      this.trust = TRUSTED;
    }
    if (this.trust <= 0) this.limit = Math.min(this.options.to, Math.ceil(GROWTH * this.limit));
  }

  private release(): void {
    for (const { place, go } of this.waiting.splice(0)) {
      if (place < this.limit) go();
      else this.waiting.push({ place, go });
    }
  }
}
