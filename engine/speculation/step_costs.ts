/** What one more row costs, as a share of a step, where nothing is known yet: little, so that it is tried. */
const ASSUMED = 0.03;
/**
 * Steps after which a time is no longer believed: one slow moment must not be the last word, least of all the first where it speaks
 * against drafts, so that no other follows. Twice as many each time that such a step is measured again, at most so many.
 */
const FIRST_BELIEVED = 32;
const BELIEVED = 192;
/**
 * Steps after which one without drafts is to be measured again. All others are judged beside it, and where drafts seem to pay, which
 * they do beside a time that is too long, it would not come by itself.
 */
const PLAIN_BELIEVED = 32;
/** Times that are kept of steps of so many rows. Of these the second least counts: others were held up, or were lucky. */
const KEPT = 12;
/** A single time is not believed to be more than this many times what was expected. */
const SURPRISE = 1.25;

interface Known {
  /** What such a step takes. */
  ms: number;
  /** The last times that were measured. */
  readonly times: number[];
  next: number;
  /** When it was measured last, and for how many steps that is believed. */
  step: number;
  believed: number;
}

interface Point {
  readonly rows: number;
  ms: number;
}

/** What steps take by their rows, from those that were computed: of crowds of about one size, each beside others of its kind. */
export class StepCosts {
  /** By the magnitude of the crowd, then by rows. */
  readonly #known: Map<number, Known>[] = [];
  /** By the magnitude of the crowd: when a step without drafts was measured last. */
  readonly #plain: number[] = [];
  #steps = 0;

  /** A step of so many rows, of so many sequences that decode, took so long. */
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

  /** Whether a step without drafts of such a crowd was measured lately. */
  knowsPlain(sequences: number): boolean {
    return this.#steps - (this.#plain[magnitudeOf(sequences)] ?? -Infinity) <= PLAIN_BELIEVED;
  }

  /** Milliseconds of a step in which each of the sequences has a row, as far as that is known. */
  withoutDrafts(sequences: number): number | undefined {
    return this.#timesOf(sequences).get(sequences)?.ms;
  }

  /** Milliseconds of steps of `from` to `to` rows, both included; undefined before anything is known of such a crowd. */
  estimates(sequences: number, from: number, to: number): Float64Array | undefined {
    const times = this.#timesOf(sequences);
    const points: Point[] = [];
    for (const [rows, known] of times) {
      if (!this.#isStale(known)) points.push({ rows, ms: known.ms });
    }
    if (points.length === 0) return undefined;
    points.sort((a, b) => a.rows - b.rows);
    // Where more rows took less, fewer were held up.
    for (let i = points.length - 2; i >= 0; i--) points[i].ms = Math.min(points[i].ms, points[i + 1].ms);
    const estimates = new Float64Array(to - from + 1); // in a loop: `Float64Array.from` takes longer than all the rest
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

/** Of two or more; it is the least of two. */
function secondLeast(times: readonly number[]): number {
  let [least, second] = [Infinity, Infinity];
  for (const ms of times) {
    if (ms < least) [least, second] = [ms, least];
    else if (ms < second) second = ms;
  }
  return times.length > 2 ? second : least;
}

/**
 * A point at or beyond `rows` after the last one: a row more takes what one is assumed to beside the fewest rows. Beside the last
 * point's time, which other drafts have made longer, rows would look dearer the more there are, and more would never be tried.
 */
function beyond(points: readonly Point[], rows: number): Point {
  const last = points[points.length - 1];
  return {
    rows: Math.max(rows, last.rows + 1),
    ms: last.ms + ASSUMED * points[0].ms * Math.max(1, rows - last.rows),
  };
}

/** The time at `rows` from that of a point below or at it and of one above; before the first point a little less for each row. */
function between(low: Point, high: Point, rows: number): number {
  if (rows <= low.rows) return low.ms * (1 - ASSUMED * Math.min(1 / ASSUMED - 1, low.rows - rows) * 0.5);
  const share = (rows - low.rows) / (high.rows - low.rows);
  return low.ms + share * (Math.max(low.ms, high.ms) - low.ms);
}
