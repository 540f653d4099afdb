/** Assumed cost of one more row before anything is known, as a share of a step: low, so that it is tried. */
const ASSUMED = 0.03;
/**
 * Steps for which a time stays valid. A single slow step must not decide for good, least of all against
 * drafts, which would then never be measured again. The span doubles with each new measurement, up to
 * BELIEVED.
 */
const FIRST_BELIEVED = 32;
const BELIEVED = 192;
/**
 * A step without drafts is measured again after this many steps. All other times are compared with its time. If that
 * time were too long, drafts would always seem to pay off, and it would never be corrected.
 */
const PLAIN_BELIEVED = 32;
/** Times kept per row count. The second smallest counts: others were delayed or unusually fast. */
const KEPT = 12;
/** A single time counts at most as this multiple of the estimate. */
const SURPRISE = 1.25;

interface Known {
  /** Estimated milliseconds of the step. */
  ms: number;
  /** The last measured times. */
  readonly times: number[];
  next: number;
  /** Step of the last measurement, and for how many steps it is valid. */
  step: number;
  believed: number;
}

interface Point {
  readonly rows: number;
  ms: number;
}

/** Learns step time per row count and concurrency level. Each level has its own measurements. */
export class StepCosts {
  /** By concurrency level, then by row count. */
  readonly #known: Map<number, Known>[] = [];
  /** By concurrency level, the last step measured without drafts. */
  readonly #plain: number[] = [];
  #steps = 0;

  /** Records the time of a step with this many rows and decoding sequences. */
  observe(sequences: number, rows: number, ms: number): void {
    this.#steps++;
    const known = this.#timesOf(sequences).get(rows);
    const plain = rows === sequences && !this.knowsPlain(sequences);
    if (rows === sequences) this.#plain[magnitudeOf(sequences)] = this.#steps;
    if (!known || plain || this.#isStale(known)) {
      const expected = this.estimates(sequences, rows, rows)?.[0] ?? ms;
      const believed = Math.min(BELIEVED, known ? 2 * known.believed : FIRST_BELIEVED);
      const first = {
        ms: Math.min(ms, SURPRISE * expected),
        times: [ms],
        next: 1,
        step: this.#steps,
        believed,
      };
      this.#timesOf(sequences).set(rows, first);
      return;
    }
    known.believed = Math.min(BELIEVED, 2 * known.believed);
    known.times[known.next] = ms;
    known.next = (known.next + 1) % KEPT;
    known.ms = secondLeast(known.times);
    known.step = this.#steps;
  }

  /** Whether a step without drafts at this concurrency level was measured recently. */
  knowsPlain(sequences: number): boolean {
    return this.#steps - (this.#plain[magnitudeOf(sequences)] ?? -Infinity) <= PLAIN_BELIEVED;
  }

  /** Returns the milliseconds of a step with one row per sequence; undefined where unknown. */
  withoutDrafts(sequences: number): number | undefined {
    return this.#timesOf(sequences).get(sequences)?.ms;
  }

  /**
   * Returns the milliseconds of steps with `from` to `to` rows, inclusive; undefined before any measurement
   * at this concurrency level.
   */
  estimates(sequences: number, from: number, to: number): Float64Array | undefined {
    const times = this.#timesOf(sequences);
    const points: Point[] = [];
    for (const [rows, known] of times) {
      if (!this.#isStale(known)) points.push({ rows, ms: known.ms });
    }
    if (points.length === 0) return undefined;
    points.sort((a, b) => a.rows - b.rows);
    // If more rows took less time, the measurement with fewer rows was delayed.
    for (let i = points.length - 2; i >= 0; i--) points[i].ms = Math.min(points[i].ms, points[i + 1].ms);
    const estimates = new Float64Array(to - from + 1); // a loop, because `Float64Array.from` is slower than everything else here
    for (let rows = from, at = 0; rows <= to; rows++) {
      while (at + 1 < points.length && points[at + 1].rows <= rows) at++;
      estimates[rows - from] = between(points[at], points[at + 1] ?? beyond(points, rows), rows);
    }
    return estimates;
  }

  #isStale({ step, believed }: Known): boolean {
    return this.#steps - step > believed;
  }

  #timesOf(sequences: number): Map<number, Known> {
    return this.#known[magnitudeOf(sequences)] ??= new Map();
  }
}

function magnitudeOf(sequences: number): number {
  return 32 - Math.clz32(sequences - 1);
}

/** Returns the second smallest of three or more times, the smallest of two. */
function secondLeast(times: readonly number[]): number {
  let [least, second] = [Infinity, Infinity];
  for (const ms of times) {
    if (ms < least) [least, second] = [ms, least];
    else if (ms < second) second = ms;
  }
  return times.length > 2 ? second : least;
}

/**
 * Returns an extrapolated point at or beyond `rows`. Each row costs a fixed share of the step with the fewest
 * rows. A share of the last point would make rows look more expensive the more there are, so they would never
 * be tried.
 */
function beyond(points: readonly Point[], rows: number): Point {
  const last = points[points.length - 1];
  return {
    rows: Math.max(rows, last.rows + 1),
    ms: last.ms + ASSUMED * points[0].ms * Math.max(1, rows - last.rows),
  };
}

/**
 * Returns the time at `rows`, interpolated between two points. Below the first point, each row costs slightly
 * less.
 */
function between(low: Point, high: Point, rows: number): number {
  if (rows <= low.rows) return low.ms * (1 - ASSUMED * Math.min(1 / ASSUMED - 1, low.rows - rows) * 0.5);
  const share = (rows - low.rows) / (high.rows - low.rows);
  return low.ms + share * (Math.max(low.ms, high.ms) - low.ms);
}
