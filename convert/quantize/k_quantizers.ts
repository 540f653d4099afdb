/**
 * Quantizers for Q4_K and Q6_K. The sub-blocks of a block share factors, and each sub-block's scale is a
 * small integer.
 * 1. Search each sub-block's best scale in floats: for several steps, codes and the scale that fits them by
 * least squares.
 * 2. Search the nearby integers, with the best codes for each.
 * 3. Refit the factors over the block by least squares. The error is the sum of squares.
 */
import { putHalf, type Quantizer } from "./quantizers.ts";

const COLUMNS = 256;

/** Values and codes of the current block, reused to save allocations. */
const x = new Float64Array(COLUMNS);
const codes = new Uint8Array(COLUMNS);
const bestCodes = new Uint8Array(COLUMNS);

/** Copies a block into `x`. Returns false for NaN or infinity. */
function takeBlock(values: Float32Array, at: number): boolean {
  let sum = 0;
  for (let i = 0; i < COLUMNS; i++) {
    x[i] = values[at + i];
    sum += Math.abs(x[i]);
  }
  return sum < Infinity;
}

// ---- Q4_K: values = d * scale * code - dmin * min, with 8 sub-blocks of 32.

const SUBS_4 = 8;
const SUB_4 = 32;
const MOST_4 = 15;
/** Largest integer scale and min of Q4_K (6 bits). */
const MOST_SCALE_4 = 63;
/** Candidates for Q4_K's step: the range of the values is divided by each. */
const STEPS_4 = Float64Array.from({ length: 13 }, (_, i) => MOST_4 - 1.2 + 0.2 * i);

const scales = new Float64Array(SUBS_4);
const mins = new Float64Array(SUBS_4);
const scaleCodes = new Uint8Array(SUBS_4);
const minCodes = new Uint8Array(SUBS_4);

/**
 * Writes the best scale and min of the sub-block at x[at..] into scales[j] and mins[j]. Scale and min are never below
 * 0.
 */
function fitSub4(at: number, j: number): void {
  let [low, high, sumX] = [0, -Infinity, 0];
  for (let i = at; i < at + SUB_4; i++) {
    const value = x[i];
    if (value < low) low = value;
    if (value > high) high = value;
    sumX += value;
  }
  const range = high - low;
  [scales[j], mins[j]] = [0, -low];
  if (!(range > 0)) return;
  let most = -Infinity;
  for (let step = 0; step < STEPS_4.length; step++) {
    const inverse = STEPS_4[step] / range;
    let [sumQ, sumQQ, sumQX] = [0, 0, 0];
    for (let i = at; i < at + SUB_4; i++) {
      const value = x[i];
      let q = (value - low) * inverse + 0.5 | 0;
      if (q > MOST_4) q = MOST_4;
      sumQ += q;
      sumQQ += q * q;
      sumQX += q * value;
    }
    const determinant = SUB_4 * sumQQ - sumQ * sumQ;
    let scale = (SUB_4 * sumQX - sumQ * sumX) / determinant;
    let offset = (sumQQ * sumX - sumQ * sumQX) / determinant;
    if (!(determinant > 0 && offset < 0)) {
      offset = 0;
      scale = sumQX / sumQQ;
    }
    // The error is the sum of squares minus `explained`.
    const explained = scale * sumQX + offset * sumX;
    if (scale > 0 && explained > most) {
      most = explained;
      scales[j] = scale;
      mins[j] = -offset;
    }
  }
}

/** Returns the sub-block's error under this scale and min. Leaves the nearest codes in `codes`. */
function error4(at: number, scale: number, min: number): number {
  const inverse = scale > 0 ? 1 / scale : 0;
  let error = 0;
  for (let i = at; i < at + SUB_4; i++) {
    const value = x[i] + min;
    let q = value * inverse + 0.5 | 0;
    if (q < 0) q = 0;
    if (q > MOST_4) q = MOST_4;
    codes[i] = q;
    const off = scale * q - value;
    error += off * off;
  }
  return error;
}

/** Chooses the integer scale and min with the least error, near scale / d and min / dmin, and their codes. */
function roundSub4(at: number, j: number, d: number, dmin: number): number {
  const scale = d > 0 ? Math.min(MOST_SCALE_4, Math.round(scales[j] / d)) : 0;
  const min = dmin > 0 ? Math.min(MOST_SCALE_4, Math.round(mins[j] / dmin)) : 0;
  let least = Infinity;
  for (let by = -1; by <= 1; by++) {
    for (let minBy = -1; minBy <= 1; minBy++) {
      const [s, m] = [scale + by, min + minBy];
      if (s < 0 || s > MOST_SCALE_4 || m < 0 || m > MOST_SCALE_4) continue;
      const error = error4(at, d * s, dmin * m);
      if (error >= least) continue;
      least = error;
      scaleCodes[j] = s;
      minCodes[j] = m;
      for (let i = at; i < at + SUB_4; i++) bestCodes[i] = codes[i];
    }
  }
  return least;
}

/**
 * Returns the d and dmin that fit the integers and codes by least squares; undefined when the system is
 * singular.
 */
function refit4(): [d: number, dmin: number] | undefined {
  let [aa, ab, bb, ax, bx] = [0, 0, 0, 0, 0];
  for (let i = 0; i < COLUMNS; i++) {
    const a = scaleCodes[i >> 5] * bestCodes[i];
    const b = -minCodes[i >> 5];
    aa += a * a;
    ab += a * b;
    bb += b * b;
    ax += a * x[i];
    bx += b * x[i];
  }
  const determinant = aa * bb - ab * ab;
  if (!(determinant > 1e-9 * aa * bb)) return aa > 0 && bb === 0 ? [ax / aa, 0] : undefined;
  const [d, dmin] = [(ax * bb - bx * ab) / determinant, (bx * aa - ax * ab) / determinant];
  return d > 0 && dmin >= 0 ? [d, dmin] : undefined;
}

/** Replaces the block's integers and codes by the best ones under d and dmin. Returns the error. */
function roundBlock4(d: number, dmin: number): number {
  let error = 0;
  for (let j = 0; j < SUBS_4; j++) error += roundSub4(SUB_4 * j, j, d, dmin);
  return error;
}

function write4(out: Uint8Array, to: number): void {
  out.fill(0, to + 4, to + 144);
  const p = to + 4;
  for (let j = 0; j < SUBS_4; j++) {
    const [scale, min] = [scaleCodes[j], minCodes[j]];
    if (j < 4) {
      out[p + j] |= scale;
      out[p + j + 4] |= min;
    } else {
      out[p + j + 4] = scale & 15 | (min & 15) << 4;
      out[p + j - 4] |= scale >> 4 << 6;
      out[p + j] |= min >> 4 << 6;
    }
  }
  for (let k = 0; k < COLUMNS; k++) out[to + 16 + (k >> 6) * 32 + k % 32] |= bestCodes[k] << (k & 32 ? 4 : 0);
}

export const q4_k: Quantizer = {
  type: "Q4_K",
  columns: COLUMNS,
  bytes: 144,
  block(values, at, out, to, restored) {
    if (!takeBlock(values, at)) return false;
    let [mostScale, mostMin] = [0, 0];
    for (let j = 0; j < SUBS_4; j++) {
      fitSub4(SUB_4 * j, j);
      mostScale = Math.max(mostScale, scales[j]);
      mostMin = Math.max(mostMin, mins[j]);
    }
    let d = putHalf(mostScale / MOST_SCALE_4, out, to);
    let dmin = putHalf(mostMin / MOST_SCALE_4, out, to + 2);
    if (d === Infinity || dmin === Infinity) return false;
    const error = roundBlock4(d, dmin);
    const refitted = refit4();
    if (refitted) {
      const [before, beforeMin] = [d, dmin];
      d = putHalf(refitted[0], out, to);
      dmin = putHalf(refitted[1], out, to + 2);
      if (!(roundBlock4(d, dmin) <= error)) {
        d = putHalf(before, out, to);
        dmin = putHalf(beforeMin, out, to + 2);
        roundBlock4(d, dmin);
      }
    }
    write4(out, to);
    for (let i = 0; i < COLUMNS; i++) {
      restored[i] = d * scaleCodes[i >> 5] * bestCodes[i] - dmin * minCodes[i >> 5];
    }
    return true;
  },
};

// ---- Q6_K: values = d * scale * (code - 32), with 16 sub-blocks of 16 and signed scales.

const SUBS_6 = 16;
const SUB_6 = 16;
const MIDDLE_6 = 32;
/** Candidates for Q6_K's step: the largest magnitude is divided by each. */
const STEPS_6 = Float64Array.from({ length: 13 }, (_, i) => MIDDLE_6 - 0.9 + 0.15 * i);

const scales6 = new Float64Array(SUBS_6);
const scaleCodes6 = new Int8Array(SUBS_6);

/**
 * Returns the sub-block's scale. Its sign gives the largest magnitude the code -32, which has no positive
 * counterpart.
 */
function fitSub6(at: number): number {
  let [low, high] = [0, 0];
  for (let i = at; i < at + SUB_6; i++) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
  }
  const extreme = high > -low ? high : low;
  if (extreme === 0) return 0;
  let [most, best] = [-1, 0];
  for (let step = 0; step < STEPS_6.length; step++) {
    const inverse = -STEPS_6[step] / extreme;
    let [sumQQ, sumQX] = [0, 0];
    for (let i = at; i < at + SUB_6; i++) {
      const value = x[i];
      let q = (value * inverse + (MIDDLE_6 + 0.5) | 0) - MIDDLE_6;
      if (q < -MIDDLE_6) q = -MIDDLE_6;
      if (q > MIDDLE_6 - 1) q = MIDDLE_6 - 1;
      sumQQ += q * q;
      sumQX += q * value;
    }
    const explained = sumQX * sumQX / sumQQ;
    if (explained > most) [most, best] = [explained, sumQX / sumQQ];
  }
  return best;
}

/** Returns the sub-block's error under this signed scale. Leaves the nearest codes in `codes`. */
function error6(at: number, scale: number): number {
  const inverse = scale !== 0 ? 1 / scale : 0;
  let error = 0;
  for (let i = at; i < at + SUB_6; i++) {
    let q = x[i] * inverse + (MIDDLE_6 + 0.5) | 0;
    if (q < 0) q = 0;
    if (q > 2 * MIDDLE_6 - 1) q = 2 * MIDDLE_6 - 1;
    codes[i] = q;
    const off = scale * (q - MIDDLE_6) - x[i];
    error += off * off;
  }
  return error;
}

/** Replaces the block's integers and codes by the best ones under d. Returns the error. */
function roundBlock6(d: number): number {
  let error = 0;
  for (let j = 0; j < SUBS_6; j++) {
    const [at, scale] = [SUB_6 * j, d !== 0 ? Math.round(scales6[j] / d) : 0];
    let least = Infinity;
    for (let s = Math.max(-128, scale - 1); s <= Math.min(127, scale + 1); s++) {
      const found = error6(at, d * s);
      if (found >= least) continue;
      least = found;
      scaleCodes6[j] = s;
      for (let i = at; i < at + SUB_6; i++) bestCodes[i] = codes[i];
    }
    error += least;
  }
  return error;
}

function refit6(): number {
  let [aa, ax] = [0, 0];
  for (let i = 0; i < COLUMNS; i++) {
    const a = scaleCodes6[i >> 4] * (bestCodes[i] - MIDDLE_6);
    aa += a * a;
    ax += a * x[i];
  }
  return aa > 0 ? ax / aa : 0;
}

function write6(out: Uint8Array, to: number): void {
  out.fill(0, to, to + 192);
  for (let k = 0; k < COLUMNS; k++) {
    const [half, run, i] = [k >> 7, k >> 5 & 3, k & 31];
    out[to + 64 * half + run % 2 * 32 + i] |= (bestCodes[k] & 15) << 4 * (run >> 1);
    out[to + 128 + 32 * half + i] |= bestCodes[k] >> 4 << 2 * run;
  }
  for (let j = 0; j < SUBS_6; j++) out[to + 192 + j] = scaleCodes6[j];
}

export const q6_k: Quantizer = {
  type: "Q6_K",
  columns: COLUMNS,
  bytes: 210,
  block(values, at, out, to, restored) {
    if (!takeBlock(values, at)) return false;
    let extreme = 0;
    for (let j = 0; j < SUBS_6; j++) {
      scales6[j] = fitSub6(SUB_6 * j);
      if (Math.abs(scales6[j]) > Math.abs(extreme)) extreme = scales6[j];
    }
    let d = putHalf(extreme / -128, out, to + 208);
    if (Math.abs(d) === Infinity) return false;
    const error = roundBlock6(d);
    const before = d;
    d = putHalf(refit6(), out, to + 208);
    if (!(roundBlock6(d) <= error)) {
      d = putHalf(before, out, to + 208);
      roundBlock6(d);
    }
    write6(out, to);
    for (let i = 0; i < COLUMNS; i++) restored[i] = d * scaleCodes6[i >> 4] * (bestCodes[i] - MIDDLE_6);
    return true;
  },
};
