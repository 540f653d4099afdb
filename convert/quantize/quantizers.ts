import type { TensorType } from "../../engine/gguf/types.ts";

/** Weights of the values' squared errors. A block's weights begin at `values[at]`. */
export interface Weights {
  readonly values: Float32Array;
  at: number;
}

/** Quantizes blocks of values into ggml's blocks. */
export interface Quantizer {
  readonly type: TensorType;
  /** Number of values per block. */
  readonly columns: number;
  readonly bytes: number;
  /** Whether the quantizer uses the weights. */
  readonly weighs?: boolean;
  /**
   * Quantizes `values[at..at + columns]` into `out[to..]` and writes the dequantized values to `restored`. Returns
   * false if a value is too large for the format. Without `weights`, all values have the same weight.
   */
  block(
    values: Float32Array,
    at: number,
    out: Uint8Array,
    to: number,
    restored: Float32Array,
    weights?: Weights,
  ): boolean;
}

export const BLOCK = 32;

/** Positive values of E2M1 by code. Codes with the sign bit are their negatives. */
export const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/**
 * Repacks `bytes` bytes of adjacent 4-bit codes in the order of ggml's blocks: byte j gets the codes of columns j and
 * j + `bytes`.
 */
export function interleave(codes: Uint8Array, at: number, out: Uint8Array, to: number, bytes = 16): void {
  for (let k = 0; k < bytes / 2; k++) {
    const low = codes[at + k];
    const high = codes[at + k + bytes / 2];
    out[to + 2 * k] = low & 15 | (high & 15) << 4;
    out[to + 2 * k + 1] = low >> 4 | high & 0xf0;
  }
}

const half = new Float16Array(1);
const halfBytes = new Uint8Array(half.buffer);

/** Writes a value as f16 and returns the rounded value. */
export function putHalf(value: number, out: Uint8Array, to: number): number {
  half[0] = value;
  out[to] = halfBytes[0];
  out[to + 1] = halfBytes[1];
  return half[0];
}

/** Returns the value with the largest magnitude. */
function extreme(values: Float32Array, at: number): number {
  let found = 0;
  for (let i = at; i < at + BLOCK; i++) if (Math.abs(values[i]) > Math.abs(found)) found = values[i];
  return found;
}

/** Quantizer for Q8_0: scale = largest magnitude / 127, codes from -127 to 127. */
export const q8_0: Quantizer = {
  type: "Q8_0",
  columns: BLOCK,
  bytes: 34,
  block(values, at, out, to, restored) {
    const scale = putHalf(Math.abs(extreme(values, at)) / 127, out, to);
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = 0; i < BLOCK; i++) {
      const code = Math.max(-127, Math.min(127, Math.round(values[at + i] * inverse)));
      out[to + 2 + i] = code;
      restored[i] = code * scale;
    }
    return scale < Infinity;
  },
};

/**
 * Quantizer for Q4_0: scale = extreme value / -8, so that value is exact. Byte j has the codes of columns j and j + 16.
 */
export const q4_0: Quantizer = {
  type: "Q4_0",
  columns: BLOCK,
  bytes: 18,
  block(values, at, out, to, restored) {
    const scale = putHalf(extreme(values, at) / -8, out, to);
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = 0; i < BLOCK; i++) {
      const code = Math.max(0, Math.min(15, Math.round(values[at + i] * inverse) + 8));
      restored[i] = (code - 8) * scale;
      if (i < 16) out[to + 2 + i] = code;
      else out[to + 2 + i - 16] |= code << 4;
    }
    return Math.abs(scale) < Infinity;
  },
};

/** Largest exponent of E8M0; 255 is NaN. */
const MAX_EXPONENT = 254;
/** Exact values of 2^(127 - e), by e. */
const INVERSES = Float64Array.from({ length: MAX_EXPONENT + 2 }, (_, e) => 2 ** (127 - e));
/** Values of E2M1 by code, with the sign bit. */
const SIGNED = Float64Array.from({ length: 16 }, (_, code) => code & 8 ? -E2M1[code & 7] : E2M1[code]);

/*
 * Table lookup of the nearest code avoids an unpredictable branch. Where one code's range ends and the next
 * begins, an f32's mantissa is 1, 1.25, 1.5 or 1.75. So the exponent and two more bits determine the code. A
 * magnitude halfway goes to the even code: for mantissas 1 and 1.25 that is the lower code, so the index
 * subtracts 1 from their bits.
 */
const index = (bits: number) => (bits - 1 + (bits >> 22 & 1) >> 21) + 1;
/** Codes by table index, for a magnitude and for half of it. */
const NEAREST = Uint8Array.from({ length: 1025 }, (_, i) => nearestE2m1(i));
const NEAREST_HALF = NEAREST.map((_, i) => NEAREST[Math.max(0, i - 4)]);
/** Dequantized values by table index. */
const HELD = Float64Array.from(NEAREST, (code) => E2M1[code]);
const HELD_HALF = Float64Array.from(NEAREST_HALF, (code) => 2 * E2M1[code]);

function nearestE2m1(index: number): number {
  const [magnitude] = new Float32Array(new Uint32Array([Math.max(0, index - 1) << 21 | 1 << 20]).buffer);
  const above = E2M1.findIndex((value, code) => code === 7 || magnitude < (value + E2M1[code + 1]) / 2);
  return Number.isNaN(magnitude) ? 7 : above;
}

/** Magnitudes of a block as floats; `bits` views them as integers. */
const scaled = new Float32Array(BLOCK);
const bits = new Int32Array(scaled.buffer);
const indices = new Int32Array(BLOCK);

/**
 * Quantizer for MXFP4. It tries two exponents, which bring the largest magnitude to 4..8 or 2..4, and keeps the one
 * with the smaller error.
 */
export const mxfp4: Quantizer = {
  type: "MXFP4",
  columns: BLOCK,
  bytes: 17,
  block(values, at, out, to, restored) {
    let largest = 0;
    for (let i = 0; i < BLOCK; i++) {
      scaled[i] = Math.abs(values[at + i]);
      largest = Math.max(largest, bits[i]);
    }
    const smaller = Math.max(0, Math.min(MAX_EXPONENT, (largest >> 23) - 2));
    const inverse = INVERSES[smaller];
    let error = 0;
    let errorAbove = 0;
    for (let i = 0; i < BLOCK; i++) {
      scaled[i] *= inverse;
      const found = indices[i] = index(bits[i]);
      const off = scaled[i] - HELD[found];
      const offAbove = scaled[i] - HELD_HALF[found];
      error += off * off;
      errorAbove += offAbove * offAbove;
    }
    const takesAbove = smaller < MAX_EXPONENT && errorAbove < error;
    const exponent = takesAbove ? smaller + 1 : smaller;
    const codes = takesAbove ? NEAREST_HALF : NEAREST;
    const scale = 1 / INVERSES[exponent];
    out[to] = exponent;
    for (let i = 0; i < 16; i++) {
      const low = codes[indices[i]] | Number(values[at + i] < 0) << 3;
      const high = codes[indices[i + 16]] | Number(values[at + i + 16] < 0) << 3;
      out[to + 1 + i] = low | high << 4;
      restored[i] = SIGNED[low] * scale;
      restored[i + 16] = SIGNED[high] * scale;
    }
    return true;
  },
};
