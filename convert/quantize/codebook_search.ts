/**
 * Finds the codes of the codebook formats, in which value = d * unit * (2 * scale + 1) * grid value. The search has the
 * same three steps as scale_min_quantizers.ts.
 */
import { COLUMNS, takeBlock, w, x } from "./blocks_of_256.ts";
import { CANDIDATES, type Codebook } from "./codebook.ts";
import type { Quantizer } from "./quantizers.ts";

/** Number of values per group. The signs of a group fill one byte. */
const GROUP = 8;
export const GROUPS = COLUMNS / GROUP;
/** Maximum number of points per group. */
export const RUNS = 2;

interface Format {
  readonly type: "IQ3_S" | "IQ3_XXS" | "IQ2_S" | "IQ2_XS" | "IQ2_XXS" | "IQ1_S" | "IQ1_M";
  readonly bytes: number;
  readonly book: Codebook;
  /**
   * Which values may be negative: any, or an even number of each eight. With "none" the format stores no signs, because
   * the points themselves have negative values.
   */
  readonly signs: "any" | "even" | "none";
  /** Number of groups that share a scale: a sub-block. */
  readonly groups: 2 | 4;
  readonly mostScale: 7 | 15;
  readonly unit: number;
  /** Number of groups that share a shift, which adds 1/8 to the grid values or subtracts it. Undefined: no shift. */
  readonly shifted?: 1 | 4;
  /** The candidate scales: each one maps the sub-block's largest magnitude to one of these grid values. */
  readonly steps: readonly number[];
  /** Writes the block's factor `d`, and returns the rounded factor. */
  putD(d: number, out: Uint8Array, to: number): number;
  /** Writes the block's other bytes, which are zeros before the call. */
  write(out: Uint8Array, to: number): void;
}

/** Codes of a block. */
class Codes {
  /** Indices of points, with RUNS entries per group. */
  readonly points = new Uint16Array(RUNS * GROUPS);
  /** One byte of signs per group: bit k is 1 if value k is negative. */
  readonly signs = new Uint8Array(GROUPS);
  /** The shift of each group: the number that is added to its grid values. */
  readonly shifts = new Float64Array(GROUPS);

  take(other: Codes, first: number, count: number): void {
    for (let i = RUNS * first; i < RUNS * (first + count); i++) this.points[i] = other.points[i];
    for (let i = first; i < first + count; i++) {
      this.signs[i] = other.signs[i];
      this.shifts[i] = other.shifts[i];
    }
  }
}

/** Codes of the current candidate, and of the candidate with the other shift. */
const [tried, other] = [new Codes(), new Codes()];
/** The block's best codes so far. */
export const best = new Codes();
const scales = new Float64Array(COLUMNS / 16);
/** The block's integer scales. */
export const scaleCodes = new Uint8Array(COLUMNS / 16);

/** A group's values divided by the scale, and their nearest levels. Values have no signs if the format stores them. */
const scaled = new Float64Array(GROUP);
const levels = new Uint8Array(GROUP);
/** Indices of two sums over values x with codes q: the sum of weight * q * x, and that of weight * q * q. */
const [QX, QQ] = [0, 1];
const sums = new Float64Array(2);
const subSums = new Float64Array(2);
const otherSums = new Float64Array(2);

/** Number of points to compare during the search for a scale. More points make the scale hardly better. */
const FEW_CANDIDATES = 8;
let candidates = CANDIDATES;

/** Stores the best codes of a group in `codes`, and adds its terms to `sums`. `inverse` is 1 / scale. */
function fitGroup(
  { book, signs }: Format,
  group: number,
  inverse: number,
  shift: number,
  codes: Codes,
): void {
  const { run, bits, values, places, placeOf, zero } = book;
  const at = GROUP * group;
  let negative = 0;
  for (let k = 0; k < GROUP; k++) {
    let value = x[at + k] * inverse - shift;
    if (signs !== "none" && value < 0) {
      value = -value;
      negative |= 1 << k;
    }
    scaled[k] = value;
    const place = placeOf * value + zero;
    levels[k] = places[place <= 0 ? 0 : place >= places.length ? places.length - 1 : place | 0];
  }
  if (signs === "even" && isOdd(negative)) negative ^= 1 << flipSign(book, at);
  for (let r = 0, from = 0; from < GROUP; r++, from += run) {
    let key = 0;
    for (let k = 0; k < run; k++) key |= levels[from + k] << bits * k;
    const point = book.nearest(key, scaled, from, w, at + from, candidates);
    codes.points[RUNS * group + r] = point;
    for (let k = 0; k < run; k++) {
      const code = values[run * point + k] + shift;
      const value = x[at + from + k];
      sums[QX] += w[at + from + k] * code * (negative >> from + k & 1 ? -value : value);
      sums[QQ] += w[at + from + k] * code * code;
    }
  }
  codes.signs[group] = negative;
  codes.shifts[group] = shift;
}

function isOdd(bits: number): boolean {
  bits ^= bits >> 4;
  return (0x6996 >> (bits & 15) & 1) === 1;
}

/** Flips the sign of the value whose error then grows least, and returns its index. */
function flipSign(book: Codebook, at: number): number {
  const lowest = book.levels[0];
  let [flipped, least] = [0, Infinity];
  for (let k = 0; k < GROUP; k++) {
    const [flippedOff, off] = [scaled[k] + lowest, scaled[k] - book.levels[levels[k]]];
    const cost = w[at + k] * (flippedOff * flippedOff - off * off);
    if (cost < least) [flipped, least] = [k, cost];
  }
  scaled[flipped] = -scaled[flipped];
  levels[flipped] = 0;
  return flipped;
}

/** Stores the codes of sub-block `j` for this scale in `tried`, and its sums in `subSums`. */
function fitSub(format: Format, j: number, scale: number): void {
  const { groups, shifted } = format;
  const inverse = scale > 0 ? 1 / scale : 0;
  subSums.fill(0);
  const step = shifted ?? groups;
  for (let first = j * groups; first < (j + 1) * groups; first += step) {
    sums.fill(0);
    for (let i = first; i < first + step; i++) fitGroup(format, i, inverse, shifted ? 0.125 : 0, tried);
    if (shifted) {
      otherSums.set(sums);
      sums.fill(0);
      for (let i = first; i < first + step; i++) fitGroup(format, i, inverse, -0.125, other);
      if (sums[QQ] - 2 * inverse * sums[QX] < otherSums[QQ] - 2 * inverse * otherSums[QX]) {
        tried.take(other, first, step);
      } else {
        sums.set(otherSums);
      }
    }
    subSums[QX] += sums[QX];
    subSums[QQ] += sums[QQ];
  }
}

/** Returns the best scale of sub-block `j`, or 0 if all its values are 0. */
function scaleOf(format: Format, j: number): number {
  const { groups, steps } = format;
  let most = 0;
  for (let i = GROUP * groups * j; i < GROUP * groups * (j + 1); i++) most = Math.max(most, Math.abs(x[i]));
  if (most === 0) return 0;
  let [explained, found] = [0, 0];
  candidates = FEW_CANDIDATES;
  for (let i = 0; i < steps.length; i++) {
    fitSub(format, j, most / steps[i]);
    const [qx, qq] = [subSums[QX], subSums[QQ]];
    if (qx > 0 && qx * qx / qq > explained) {
      explained = qx * qx / qq;
      found = qx / qq;
    }
  }
  candidates = CANDIDATES;
  return found;
}

/**
 * Stores the best codes for `d` in `best` and `scaleCodes`. Tries the integers near each scale, or keeps the integers
 * with `keepsScales`. Returns the squared error without its constant term, and the `d` that fits these codes best.
 */
function roundBlock(format: Format, d: number, keepsScales = false): [error: number, refitted: number] {
  const { groups, mostScale, unit } = format;
  let [error, all, squares] = [0, 0, 0];
  for (let j = 0; j < GROUPS / groups; j++) {
    const near = d > 0 ? Math.round((scales[j] / (d * unit) - 1) / 2) : 0;
    const [from, to] = keepsScales ? [scaleCodes[j], scaleCodes[j]] : [near - 1, near + 1];
    let [least, qx, qq] = [Infinity, 0, 0];
    for (let s = Math.max(0, Math.min(mostScale, from)); s <= Math.min(mostScale, to); s++) {
      const factor = unit * (2 * s + 1);
      fitSub(format, j, d * factor);
      const found = d * factor * (d * factor * subSums[QQ] - 2 * subSums[QX]);
      if (found >= least) continue;
      least = found;
      [qx, qq] = [factor * subSums[QX], factor * factor * subSums[QQ]];
      scaleCodes[j] = s;
      best.take(tried, groups * j, groups);
    }
    error += least;
    all += qx;
    squares += qq;
  }
  return [error, squares > 0 ? all / squares : 0];
}

/** Returns the quantizer of a format. */
export function codebookQuantizer(format: Format): Quantizer {
  const { type, bytes, book: { run, values }, groups, mostScale, unit, putD, write } = format;
  return {
    type,
    columns: COLUMNS,
    bytes,
    weighs: true,
    block(block, at, out, to, restored, weights) {
      if (!takeBlock(block, at, COLUMNS, weights)) return false;
      out.fill(0, to, to + bytes);
      let most = 0;
      for (let j = 0; j < GROUPS / groups; j++) {
        scales[j] = scaleOf(format, j);
        most = Math.max(most, scales[j]);
      }
      let d = putD(most / unit / (2 * mostScale + 1), out, to);
      if (d === Infinity) return false;
      const [error, refitted] = roundBlock(format, d);
      const before = d;
      d = putD(refitted, out, to);
      if (!(d > 0 && roundBlock(format, d, true)[0] <= error)) {
        d = putD(before, out, to);
        roundBlock(format, d);
      }
      write(out, to);
      for (let i = 0; i < COLUMNS; i++) {
        const group = i >> 3;
        const scale = d * unit * (2 * scaleCodes[Math.floor(group / groups)] + 1);
        const point = best.points[RUNS * group + (run === 4 ? i >> 2 & 1 : 0)];
        const value = scale * (values[run * point + i % run] + best.shifts[group]);
        restored[i] = best.signs[group] >> (i & 7) & 1 ? -value : value;
      }
      return true;
    },
  };
}
