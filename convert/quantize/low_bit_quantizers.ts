/** Quantizers for Q1_0 and Q2_0: codes of one and two bits under one scale, fitted by least squares. */
import { putHalf, type Quantizer } from "./quantizers.ts";

const COLUMNS_1 = 128;

/** The scale is the mean magnitude: the best one for codes that are only signs. */
export const q1_0: Quantizer = {
  type: "Q1_0",
  columns: COLUMNS_1,
  bytes: 18,
  block(values, at, out, to, restored) {
    let sum = 0;
    for (let i = 0; i < COLUMNS_1; i++) sum += Math.abs(values[at + i]);
    const scale = putHalf(sum / COLUMNS_1, out, to);
    out.fill(0, to + 2, to + 18);
    for (let i = 0; i < COLUMNS_1; i++) {
      const isPositive = values[at + i] >= 0;
      restored[i] = isPositive ? scale : -scale;
      if (isPositive) out[to + 2 + (i >> 3)] |= 1 << (i & 7);
    }
    return scale < Infinity;
  },
};

const COLUMNS_2 = 64;
/** Scale candidates of Q2_0: the largest magnitude divided by each. With 1 and 2, ternary weights stay exact. */
const STEPS = Array.from({ length: 13 }, (_, i) => (i + 4) / 5).flatMap((step) => [step, -step]);

const rounded = new Float16Array(1);

/** Returns the value (-1 to 2) under a scale with this inverse that is nearest. */
function nearest(value: number, inverse: number): number {
  return Math.max(-1, Math.min(2, Math.round(value * inverse)));
}

const inverseOf = (scale: number) => scale === 0 ? 0 : 1 / scale;

/** Returns the f16 scale that fits the values with the codes that `scale` gives them. */
function fit(values: Float32Array, at: number, scale: number): number {
  const inverse = inverseOf(scale);
  let [products, squares] = [0, 0];
  for (let i = at; i < at + COLUMNS_2; i++) {
    const code = nearest(values[i], inverse);
    products += code * values[i];
    squares += code * code;
  }
  rounded[0] = squares === 0 ? 0 : products / squares;
  return rounded[0];
}

function errorOf(values: Float32Array, at: number, scale: number): number {
  const inverse = inverseOf(scale);
  let error = 0;
  for (let i = at; i < at + COLUMNS_2; i++) error += (values[i] - scale * nearest(values[i], inverse)) ** 2;
  return error;
}

/**
 * Tries several scales of both signs, because the codes stand for -1, 0, 1 and 2, and takes the one with the smallest
 * sum of squared errors.
 */
export const q2_0: Quantizer = {
  type: "Q2_0",
  columns: COLUMNS_2,
  bytes: 18,
  block(values, at, out, to, restored) {
    let most = 0;
    for (let i = at; i < at + COLUMNS_2; i++) most = Math.max(most, Math.abs(values[i]));
    let [best, least] = [most, Infinity];
    for (const step of STEPS) {
      const scale = fit(values, at, most / step);
      const error = errorOf(values, at, scale);
      if (error < least) [best, least] = [scale, error];
    }
    const scale = putHalf(best, out, to);
    const inverse = inverseOf(scale);
    out.fill(0, to + 2, to + 18);
    for (let i = 0; i < COLUMNS_2; i++) {
      const code = nearest(values[at + i], inverse);
      restored[i] = code * scale;
      out[to + 2 + (i >> 2)] |= code + 1 << 2 * (i & 3);
    }
    return Math.abs(scale) < Infinity;
  },
};
