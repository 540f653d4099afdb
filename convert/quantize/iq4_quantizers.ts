/**
 * Quantizers for IQ4_NL and IQ4_XS: value = scale * VALUES[code]. They try several scales of both signs, because VALUES
 * is not symmetric, and minimize the weighted sum of squared errors.
 */
import { bestCodes, codes, COLUMNS, takeBlock, w, x } from "./blocks_of_256.ts";
import { BLOCK, putHalf, type Quantizer } from "./quantizers.ts";

/** ggml's values of the 16 codes. */
const VALUES = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/**
 * Code of the nearest entry of VALUES. The index is twice the value, rounded down, plus 256. That is exact, because the
 * middle between two entries is always a multiple of a half.
 */
const NEAREST = Uint8Array.from({ length: 512 }, (_, i) => nearestTo((i - 256) / 2 + 0.25));
/** The entries of VALUES for the codes in NEAREST. */
const HELD = Float64Array.from(NEAREST, (code) => VALUES[code]);
/** Divisors of a sub-block's largest magnitude that give the candidate scales. */
const STEPS = Array.from({ length: 11 }, (_, i) => 98 + 4 * i).flatMap((step) => [step, -step]);

function nearestTo(value: number): number {
  const distance = (code: number) => Math.abs(VALUES[code] - value);
  return VALUES.reduce((best, _, code) => distance(code) < distance(best) ? code : best, 0);
}

/** Returns the index of a value in NEAREST. */
function placeOf(value: number): number {
  const place = 2 * value + 256;
  return place < 0 ? 0 : place > 511 ? 511 : place | 0;
}

/** Returns the best scale of the 32 values from x[at] on. */
function fitSub(at: number): number {
  let extreme = 0;
  for (let i = at; i < at + BLOCK; i++) if (Math.abs(x[i]) > Math.abs(extreme)) extreme = x[i];
  if (extreme === 0) return 0;
  let [most, best] = [-1, 0];
  for (let step = 0; step < STEPS.length; step++) {
    const inverse = STEPS[step] / extreme;
    let [sumQQ, sumQX] = [0, 0];
    for (let i = at; i < at + BLOCK; i++) {
      const q = HELD[placeOf(x[i] * inverse)];
      sumQQ += w[i] * q * q;
      sumQX += w[i] * q * x[i];
    }
    const explained = sumQX * sumQX / sumQQ;
    if (explained > most) [most, best] = [explained, sumQX / sumQQ];
  }
  return best;
}

/** Returns the error of 32 values with this scale, and writes their codes into `codes`. */
function errorOf(at: number, scale: number): number {
  const inverse = scale !== 0 ? 1 / scale : 0;
  let error = 0;
  for (let i = at; i < at + BLOCK; i++) {
    const place = placeOf(x[i] * inverse);
    codes[i] = NEAREST[place];
    const off = scale * HELD[place] - x[i];
    error += w[i] * off * off;
  }
  return error;
}

/** Writes 32 codes: byte j has the codes of columns j and j + 16. */
function writeCodes(from: Uint8Array, at: number, out: Uint8Array, to: number): void {
  for (let i = 0; i < 16; i++) out[to + i] = from[at + i] | from[at + i + 16] << 4;
}

export const iq4_nl: Quantizer = {
  type: "IQ4_NL",
  columns: BLOCK,
  bytes: 18,
  weighs: true,
  block(values, at, out, to, restored, weights) {
    if (!takeBlock(values, at, BLOCK, weights)) return false;
    const scale = putHalf(fitSub(0), out, to);
    if (Math.abs(scale) === Infinity) return false;
    errorOf(0, scale);
    writeCodes(codes, 0, out, to + 2);
    for (let i = 0; i < BLOCK; i++) restored[i] = scale * VALUES[codes[i]];
    return true;
  },
};

const SUBS = 8;
/** The most negative integer scale of IQ4_XS; the largest one is 31. */
const LEAST_SCALE = -32;

const scales = new Float64Array(SUBS);
const scaleCodes = new Int8Array(SUBS);

/** Chooses each sub-block's integer scale and codes for the block's factor d. Returns the error. */
function roundBlock(d: number): number {
  let error = 0;
  for (let j = 0; j < SUBS; j++) {
    const [at, scale] = [BLOCK * j, d !== 0 ? Math.round(scales[j] / d) : 0];
    let least = Infinity;
    for (let s = Math.max(LEAST_SCALE, scale - 1); s <= Math.min(-LEAST_SCALE - 1, scale + 1); s++) {
      const found = errorOf(at, d * s);
      if (found >= least) continue;
      least = found;
      scaleCodes[j] = s;
      for (let i = at; i < at + BLOCK; i++) bestCodes[i] = codes[i];
    }
    error += least;
  }
  return error;
}

/** Returns the least-squares factor d for the integer scales and codes. */
function refit(): number {
  let [aa, ax] = [0, 0];
  for (let i = 0; i < COLUMNS; i++) {
    const a = scaleCodes[i >> 5] * VALUES[bestCodes[i]];
    aa += w[i] * a * a;
    ax += w[i] * a * x[i];
  }
  return aa > 0 ? ax / aa : 0;
}

export const iq4_xs: Quantizer = {
  type: "IQ4_XS",
  columns: COLUMNS,
  bytes: 136,
  weighs: true,
  block(values, at, out, to, restored, weights) {
    if (!takeBlock(values, at, COLUMNS, weights)) return false;
    let extreme = 0;
    for (let j = 0; j < SUBS; j++) {
      scales[j] = fitSub(BLOCK * j);
      if (Math.abs(scales[j]) > Math.abs(extreme)) extreme = scales[j];
    }
    let d = putHalf(extreme / LEAST_SCALE, out, to);
    if (Math.abs(d) === Infinity) return false;
    const [error, before] = [roundBlock(d), d];
    d = putHalf(refit(), out, to);
    if (!(roundBlock(d) <= error)) {
      d = putHalf(before, out, to);
      roundBlock(d);
    }
    out.fill(0, to + 2, to + 8);
    for (let j = 0; j < SUBS; j++) {
      const scale = scaleCodes[j] - LEAST_SCALE;
      out[to + 4 + (j >> 1)] |= (scale & 15) << 4 * (j & 1);
      out[to + 2 + (j >> 2)] |= scale >> 4 << 2 * (j & 3);
      writeCodes(bestCodes, BLOCK * j, out, to + 8 + 16 * j);
    }
    for (let i = 0; i < COLUMNS; i++) restored[i] = d * scaleCodes[i >> 5] * VALUES[bestCodes[i]];
    return true;
  },
};
