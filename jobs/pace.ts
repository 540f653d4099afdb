export interface PaceOptions {
  /** Lines in flight to begin with. */
  readonly from: number;
  /** Most lines in flight. */
  readonly to: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

const GROWTH = 1.5;
/** What more lines in flight must bring to be kept: less is noise, and they take memory. */
const GAIN = 1.05;
const SHORTEST_MS = 4000;
/** Measurements after which a count that was good is doubted again: the lines of a file may change. */
const TRUSTED = 32;

/**
 * Finds how many lines should be in flight: more, as long as more answers come of it. Each count is measured over twice
 * as many answers, after those that began with another count.
 */
export class Pace {
  /** Lines that may be in flight now. */
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

  /** Resolves when the line at that place (from 0) may be in flight. */
  turn(place: number): Promise<void> {
    if (place < this.limit) return Promise.resolve();
    return new Promise((go) => this.waiting.push({ place, go }));
  }

  /** Nothing waits any more. */
  end(): void {
    this.limit = Infinity;
    this.release();
  }

  /** An answer has come; `work` says how much it was, in any unit. */
  answered(work: number): void {
    if (this.limit >= this.options.to && this.best.limit === 0) return; // there is nothing to choose
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
