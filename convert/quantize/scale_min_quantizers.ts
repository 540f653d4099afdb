/**
 * Quantizers for Q2_K, Q4_K and Q5_K: value = d * scale * code - dmin * min. The sub-blocks of a block share d and
 * dmin, and each sub-block's scale and min are small integers.
 * 1. Find each sub-block's best scale and min as floats: try several step sizes, and fit scale and min to the resulting
 * codes by least squares.
 * 2. Try the integers near these scales and mins, with the best codes for each.
 * 3. Fit d and dmin again over the whole block by least squares. The error is the weighted sum of squares.
 */
import { bestCodes, codes, COLUMNS, takeBlock, w, x } from "./blocks_of_256.ts";
import { putHalf, type Quantizer } from "./quantizers.ts";

interface Format {
  readonly type: "Q2_K" | "Q4_K" | "Q5_K";
  readonly bytes: number;
  /** Number of values of a sub-block. */
  readonly sub: number;
  /** Largest code, and largest integer scale and min. */
  readonly most: number;
  readonly mostScale: number;
  /** Index of the byte in the block at which d begins; dmin follows. */
  readonly at: number;
  write(out: Uint8Array, to: number): void;
}

/** Scales and mins of the current block's sub-blocks, as floats and as integers. */
const scales = new Float64Array(16);
const mins = new Float64Array(16);
const scaleCodes = new Uint8Array(16);
const minCodes = new Uint8Array(16);

/** Writes the best scale and min of the sub-block from x[at] on into scales[j] and mins[j]. Both are at least 0. */
function fitSub(at: number, j: number, { sub, most }: Format, steps: Float64Array): void {
  let [low, high, sumW, sumX] = [0, -Infinity, 0, 0];
  for (let i = at; i < at + sub; i++) {
    const value = x[i];
    if (value < low) low = value;
    if (value > high) high = value;
    sumW += w[i];
    sumX += w[i] * value;
  }
  const range = high - low;
  [scales[j], mins[j]] = [0, -low];
  if (!(range > 0)) return;
  let best = -Infinity;
  for (let step = 0; step < steps.length; step++) {
    const inverse = steps[step] / range;
    let [sumQ, sumQQ, sumQX] = [0, 0, 0];
    for (let i = at; i < at + sub; i++) {
      const value = x[i];
      let q = (value - low) * inverse + 0.5 | 0;
      if (q > most) q = most;
      const weighted = w[i] * q;
      sumQ += weighted;
      sumQQ += weighted * q;
      sumQX += weighted * value;
    }
    const determinant = sumW * sumQQ - sumQ * sumQ;
    let scale = (sumW * sumQX - sumQ * sumX) / determinant;
    let offset = (sumQQ * sumX - sumQ * sumQX) / determinant;
    if (!(determinant > 0 && offset < 0)) {
      offset = 0;
      scale = sumQX / sumQQ;
    }
    // The error is the sum of squares minus `explained`.
    const explained = scale * sumQX + offset * sumX;
    if (scale > 0 && explained > best) {
      best = explained;
      scales[j] = scale;
      mins[j] = -offset;
    }
  }
}

/** Returns the sub-block's error with this scale and min, and writes the nearest codes into `codes`. */
function errorOf(at: number, { sub, most }: Format, scale: number, min: number): number {
  const inverse = scale > 0 ? 1 / scale : 0;
  let error = 0;
  for (let i = at; i < at + sub; i++) {
    const value = x[i] + min;
    let q = value * inverse + 0.5 | 0;
    if (q < 0) q = 0;
    if (q > most) q = most;
    codes[i] = q;
    const off = scale * q - value;
    error += w[i] * off * off;
  }
  return error;
}

/** Chooses the codes and the integers near scale / d and min / dmin that have the smallest error. Returns the error. */
function roundSub(j: number, format: Format, d: number, dmin: number): number {
  const { sub, mostScale } = format;
  const at = sub * j;
  const scale = d > 0 ? Math.min(mostScale, Math.round(scales[j] / d)) : 0;
  const min = dmin > 0 ? Math.min(mostScale, Math.round(mins[j] / dmin)) : 0;
  let least = Infinity;
  for (let by = -1; by <= 1; by++) {
    for (let minBy = -1; minBy <= 1; minBy++) {
      const [s, m] = [scale + by, min + minBy];
      if (s < 0 || s > mostScale || m < 0 || m > mostScale) continue;
      const error = errorOf(at, format, d * s, dmin * m);
      if (error >= least) continue;
      least = error;
      scaleCodes[j] = s;
      minCodes[j] = m;
      for (let i = at; i < at + sub; i++) bestCodes[i] = codes[i];
    }
  }
  return least;
}

/** Returns the least-squares d and dmin for the integers and codes; undefined when the system is singular. */
function refit({ sub }: Format): [d: number, dmin: number] | undefined {
  let [aa, ab, bb, ax, bx] = [0, 0, 0, 0, 0];
  for (let i = 0; i < COLUMNS; i++) {
    const j = Math.floor(i / sub);
    const a = scaleCodes[j] * bestCodes[i];
    const b = -minCodes[j];
    aa += w[i] * a * a;
    ab += w[i] * a * b;
    bb += w[i] * b * b;
    ax += w[i] * a * x[i];
    bx += w[i] * b * x[i];
  }
  const determinant = aa * bb - ab * ab;
  if (!(determinant > 1e-9 * aa * bb)) return aa > 0 && bb === 0 ? [ax / aa, 0] : undefined;
  const [d, dmin] = [(ax * bb - bx * ab) / determinant, (bx * aa - ax * ab) / determinant];
  return d > 0 && dmin >= 0 ? [d, dmin] : undefined;
}

/** Replaces the block's integers and codes by the best ones for d and dmin. Returns the error. */
function roundBlock(format: Format, d: number, dmin: number): number {
  let error = 0;
  for (let j = 0; j < COLUMNS / format.sub; j++) error += roundSub(j, format, d, dmin);
  return error;
}

function quantizerOf(format: Format): Quantizer {
  const { type, bytes, sub, most, mostScale, at: half, write } = format;
  // A candidate step size is the range of the values, divided by one of these.
  const steps = Float64Array.from({ length: 13 }, (_, i) => most - 1.2 + 0.2 * i);
  return {
    type,
    columns: COLUMNS,
    bytes,
    weighs: true,
    block(values, at, out, to, restored, weights) {
      if (!takeBlock(values, at, COLUMNS, weights)) return false;
      let [mostScaleFound, mostMin] = [0, 0];
      for (let j = 0; j < COLUMNS / sub; j++) {
        fitSub(sub * j, j, format, steps);
        mostScaleFound = Math.max(mostScaleFound, scales[j]);
        mostMin = Math.max(mostMin, mins[j]);
      }
      const put = (value: number, min: number) =>
        [putHalf(value, out, to + half), putHalf(min, out, to + half + 2)] as const;
      let [d, dmin] = put(mostScaleFound / mostScale, mostMin / mostScale);
      if (d === Infinity || dmin === Infinity) return false;
      const error = roundBlock(format, d, dmin);
      const refitted = refit(format);
      if (refitted) {
        const before = [d, dmin] as const;
        [d, dmin] = put(...refitted);
        if (!(roundBlock(format, d, dmin) <= error)) {
          [d, dmin] = put(...before);
          roundBlock(format, d, dmin);
        }
      }
      write(out, to);
      for (let i = 0; i < COLUMNS; i++) {
        const j = Math.floor(i / sub);
        restored[i] = d * scaleCodes[j] * bestCodes[i] - dmin * minCodes[j];
      }
      return true;
    },
  };
}

/** Writes the 6-bit scales and mins of 8 sub-blocks into 12 bytes. */
function writeScales6(out: Uint8Array, p: number): void {
  for (let j = 0; j < 8; j++) {
    const [scale, min] = [scaleCodes[j], minCodes[j]];
    if (j < 4) {
      out[p + j] = scale;
      out[p + j + 4] = min;
    } else {
      out[p + j + 4] = scale & 15 | (min & 15) << 4;
      out[p + j - 4] |= scale >> 4 << 6;
      out[p + j] |= min >> 4 << 6;
    }
  }
}

/** Writes the low four bits of each code. */
function writeNibbles(out: Uint8Array, p: number): void {
  out.fill(0, p, p + 128);
  for (let k = 0; k < COLUMNS; k++) {
    out[p + (k >> 6) * 32 + k % 32] |= (bestCodes[k] & 15) << (k & 32 ? 4 : 0);
  }
}

export const q2_k: Quantizer = quantizerOf({
  type: "Q2_K",
  bytes: 84,
  sub: 16,
  most: 3,
  mostScale: 15,
  at: 80,
  write(out, to) {
    for (let j = 0; j < 16; j++) out[to + j] = scaleCodes[j] | minCodes[j] << 4;
    out.fill(0, to + 16, to + 80);
    for (let k = 0; k < COLUMNS; k++) {
      out[to + 16 + (k >> 7) * 32 + k % 32] |= bestCodes[k] << 2 * (k >> 5 & 3);
    }
  },
});

export const q4_k: Quantizer = quantizerOf({
  type: "Q4_K",
  bytes: 144,
  sub: 32,
  most: 15,
  mostScale: 63,
  at: 0,
  write(out, to) {
    writeScales6(out, to + 4);
    writeNibbles(out, to + 16);
  },
});

export const q5_k: Quantizer = quantizerOf({
  type: "Q5_K",
  bytes: 176,
  sub: 32,
  most: 31,
  mostScale: 63,
  at: 0,
  write(out, to) {
    writeScales6(out, to + 4);
    out.fill(0, to + 16, to + 48);
    for (let k = 0; k < COLUMNS; k++) out[to + 16 + k % 32] |= bestCodes[k] >> 4 << (k >> 5);
    writeNibbles(out, to + 48);
  },
});
