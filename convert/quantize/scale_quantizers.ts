/**
 * Quantizers for Q3_K and Q6_K: value = d * scale * code, with 16 sub-blocks of 16 values and signed scales. They
 * search in the same three steps as scale_min_quantizers.ts.
 */
import { bestCodes, codes, COLUMNS, takeBlock, w, x } from "./blocks_of_256.ts";
import { putHalf, type Quantizer } from "./quantizers.ts";

const SUBS = 16;
const SUB = 16;

interface Format {
  readonly type: "Q3_K" | "Q6_K";
  readonly bytes: number;
  /** Number that is added to stored codes. Codes are from -middle to middle - 1. */
  readonly middle: number;
  /** The most negative integer scale. The largest is -leastScale - 1. */
  readonly leastScale: number;
  /** Index of the byte in the block at which d begins. */
  readonly at: number;
  write(out: Uint8Array, to: number): void;
}

/** Scales of the current block's sub-blocks, as floats and as integers. */
const scales = new Float64Array(SUBS);
const scaleCodes = new Int8Array(SUBS);

/**
 * Returns the sub-block's scale. Its sign gives the largest magnitude the code -middle, which has no
 * positive counterpart.
 */
function fitSub(at: number, middle: number, steps: Float64Array): number {
  let [low, high] = [0, 0];
  for (let i = at; i < at + SUB; i++) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
  }
  const extreme = high > -low ? high : low;
  if (extreme === 0) return 0;
  let [most, best] = [-1, 0];
  for (let step = 0; step < steps.length; step++) {
    const inverse = steps[step] / extreme;
    let [sumQQ, sumQX] = [0, 0];
    for (let i = at; i < at + SUB; i++) {
      const value = x[i];
      let q = (value * inverse + (middle + 0.5) | 0) - middle;
      if (q < -middle) q = -middle;
      if (q > middle - 1) q = middle - 1;
      sumQQ += w[i] * q * q;
      sumQX += w[i] * q * value;
    }
    const explained = sumQX * sumQX / sumQQ;
    if (explained > most) [most, best] = [explained, sumQX / sumQQ];
  }
  return best;
}

/** Returns the sub-block's error with this signed scale, and writes the nearest codes into `codes`. */
function errorOf(at: number, middle: number, scale: number): number {
  const inverse = scale !== 0 ? 1 / scale : 0;
  let error = 0;
  for (let i = at; i < at + SUB; i++) {
    let q = x[i] * inverse + (middle + 0.5) | 0;
    if (q < 0) q = 0;
    if (q > 2 * middle - 1) q = 2 * middle - 1;
    codes[i] = q;
    const off = scale * (q - middle) - x[i];
    error += w[i] * off * off;
  }
  return error;
}

/** Replaces the block's integers and codes by the best ones for d. Returns the error. */
function roundBlock({ middle, leastScale }: Format, d: number): number {
  let error = 0;
  for (let j = 0; j < SUBS; j++) {
    const [at, scale] = [SUB * j, d !== 0 ? Math.round(scales[j] / d) : 0];
    let least = Infinity;
    for (let s = Math.max(leastScale, scale - 1); s <= Math.min(-leastScale - 1, scale + 1); s++) {
      const found = errorOf(at, middle, d * s);
      if (found >= least) continue;
      least = found;
      scaleCodes[j] = s;
      for (let i = at; i < at + SUB; i++) bestCodes[i] = codes[i];
    }
    error += least;
  }
  return error;
}

function refit(middle: number): number {
  let [aa, ax] = [0, 0];
  for (let i = 0; i < COLUMNS; i++) {
    const a = scaleCodes[i >> 4] * (bestCodes[i] - middle);
    aa += w[i] * a * a;
    ax += w[i] * a * x[i];
  }
  return aa > 0 ? ax / aa : 0;
}

function quantizerOf(format: Format): Quantizer {
  const { type, bytes, middle, leastScale, at: half, write } = format;
  // A candidate scale is the largest magnitude, divided by one of these.
  const steps = Float64Array.from({ length: 13 }, (_, i) => 0.9 - middle - 0.15 * i);
  return {
    type,
    columns: COLUMNS,
    bytes,
    weighs: true,
    block(values, at, out, to, restored, weights) {
      if (!takeBlock(values, at, COLUMNS, weights)) return false;
      let extreme = 0;
      for (let j = 0; j < SUBS; j++) {
        scales[j] = fitSub(SUB * j, middle, steps);
        if (Math.abs(scales[j]) > Math.abs(extreme)) extreme = scales[j];
      }
      let d = putHalf(extreme / leastScale, out, to + half);
      if (Math.abs(d) === Infinity) return false;
      const error = roundBlock(format, d);
      const before = d;
      d = putHalf(refit(middle), out, to + half);
      if (!(roundBlock(format, d) <= error)) {
        d = putHalf(before, out, to + half);
        roundBlock(format, d);
      }
      write(out, to);
      for (let i = 0; i < COLUMNS; i++) restored[i] = d * scaleCodes[i >> 4] * (bestCodes[i] - middle);
      return true;
    },
  };
}

export const q3_k: Quantizer = quantizerOf({
  type: "Q3_K",
  bytes: 110,
  middle: 4,
  leastScale: -32,
  at: 108,
  write(out, to) {
    out.fill(0, to, to + 108);
    for (let k = 0; k < COLUMNS; k++) {
      out[to + k % 32] |= bestCodes[k] >> 2 << (k >> 5);
      out[to + 32 + (k >> 7) * 32 + k % 32] |= (bestCodes[k] & 3) << 2 * (k >> 5 & 3);
    }
    for (let j = 0; j < SUBS; j++) {
      const scale = scaleCodes[j] + 32;
      out[to + 96 + j % 8] |= (scale & 15) << 4 * (j >> 3);
      out[to + 104 + j % 4] |= scale >> 4 << 2 * (j >> 2);
    }
  },
});

export const q6_k: Quantizer = quantizerOf({
  type: "Q6_K",
  bytes: 210,
  middle: 32,
  leastScale: -128,
  at: 208,
  write(out, to) {
    out.fill(0, to, to + 192);
    for (let k = 0; k < COLUMNS; k++) {
      const [half, run, i] = [k >> 7, k >> 5 & 3, k & 31];
      out[to + 64 * half + run % 2 * 32 + i] |= (bestCodes[k] & 15) << 4 * (run >> 1);
      out[to + 128 + 32 * half + i] |= bestCodes[k] >> 4 << 2 * run;
    }
    for (let j = 0; j < SUBS; j++) out[to + 192 + j] = scaleCodes[j];
  },
});
