import { GRID_TEXTS, pointsOf } from "./grids.ts";

/** Number of nearest points that `Codebook` stores per key. */
export const CANDIDATES = 24;
const KEYS = 2 ** 16;

/** The points of a grid, with a search for the nearest point. A key packs the nearest level of each value. */
export class Codebook {
  readonly levels: Float64Array;
  /** Values of the points, one point after the other. */
  readonly values: Float64Array; // [points * run]
  /** Number of values per point: 4 or 8. */
  readonly run: number;
  /** Bits per value in a key. */
  readonly bits: number;
  /** Table of the nearest level: `places[floor(value * placeOf + zero)]`. Clamp the index to the array's bounds. */
  readonly places: Uint8Array;
  readonly placeOf: number;
  readonly zero: number;
  readonly #keys: Uint16Array;
  readonly #index = new Int16Array(KEYS).fill(-1);
  /** Indices of the nearest points by key. An entry is computed when a search first needs it. */
  readonly #near: (Uint16Array | undefined)[] = Array(KEYS).fill(undefined);

  /** `levels` are the possible values, ascending. A point stores each value as an index into `levels`. */
  constructor(grid: keyof typeof GRID_TEXTS, levels: readonly number[]) {
    this.levels = Float64Array.from(levels);
    this.#keys = pointsOf(grid);
    this.run = grid.startsWith("IQ3") ? 4 : 8;
    this.bits = 16 / this.run;
    // Midpoints between levels are multiples of 0.5, so a table with steps of 0.5 is exact.
    this.placeOf = 2;
    this.zero = -2 * levels[0];
    this.places = Uint8Array.from({ length: 2 * (levels.at(-1)! - levels[0]) }, (_, i) => {
      return this.#level(levels[0] + i / 2 + 0.25);
    });
    this.#keys.forEach((key, i) => this.#index[key] = i);
    this.values = Float64Array.from({ length: this.#keys.length * this.run }, (_, i) => {
      return this.#value(this.#keys[Math.floor(i / this.run)], i % this.run);
    });
  }

  /**
   * Returns the index of a point with a small weighted squared distance to the values that start at `at`. Their weights
   * start at `from`. If the levels in `key` are a point of the grid, the search returns it. Otherwise the search compares
   * the `candidates` points nearest to these levels.
   */
  nearest(
    key: number,
    values: Float64Array,
    at: number,
    weights: Float64Array,
    from: number,
    candidates: number,
  ): number {
    const found = this.#index[key];
    if (found >= 0) return found;
    const near = this.#near[key] ??= this.#nearTo(key);
    const { run, values: points } = this;
    let [best, least] = [0, Infinity];
    for (let i = 0; i < candidates; i++) {
      const point = near[i] * run;
      let distance = 0;
      for (let k = 0; k < run; k++) {
        const off = points[point + k] - values[at + k];
        distance += weights[from + k] * off * off;
      }
      if (distance < least) {
        least = distance;
        best = near[i];
      }
    }
    return best;
  }

  #nearTo(key: number): Uint16Array {
    const { run, values } = this;
    const wanted = Float64Array.from({ length: run }, (_, k) => this.#value(key, k));
    const order = new Float64Array(this.#keys.length);
    for (let i = 0; i < order.length; i++) {
      let distance = 0;
      for (let k = 0; k < run; k++) {
        const off = values[i * run + k] - wanted[k];
        distance += off * off;
      }
      // Distances are integers, so the fraction can store the point's index. Sorting then needs no slow comparator.
      order[i] = distance + i / KEYS;
    }
    return Uint16Array.from(order.sort().subarray(0, CANDIDATES), (value) => value % 1 * KEYS);
  }

  /** Returns the index of the nearest level. */
  #level(value: number): number {
    const distance = (level: number) => Math.abs(this.levels[level] - value);
    return this.levels.reduce((best, _, i) => distance(i) < distance(best) ? i : best, 0);
  }

  #value(key: number, k: number): number {
    return this.levels[key >> this.bits * k & (1 << this.bits) - 1];
  }
}
