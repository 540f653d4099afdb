import type { TensorType } from "../gguf/types.ts";

/** Quantises blocks of 32 values into ggml's blocks. */
export interface Quantizer {
  readonly type: TensorType;
  /** Bytes of a block. */
  readonly bytes: number;
  /**
   * Writes the block of `values[at..at + 32]` at `out[to..]`, and puts what it stands for into `restored`. False where
   * the format cannot hold values of that size.
   */
  block(
    values: Float32Array,
    at: number,
    out: Uint8Array,
    to: number,
    restored: Float32Array,
  ): boolean;
}

export const BLOCK = 32;

/** The formats that `--quantize` takes. */
export type QuantizeTo = "q8_0" | "q4_0" | "mxfp4";
export const QUANTIZE_TO: readonly QuantizeTo[] = ["q8_0", "q4_0", "mxfp4"];

/** E2M1's values; the eight with the sign bit are their negatives. */
export const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

const half = new Float16Array(1);
const halfBytes = new Uint8Array(half.buffer);

/** Writes a half and returns its value. */
function putHalf(value: number, out: Uint8Array, to: number): number {
  half[0] = value;
  out[to] = halfBytes[0];
  out[to + 1] = halfBytes[1];
  return half[0];
}

/** The value of the largest magnitude, with its sign. */
function extreme(values: Float32Array, at: number): number {
  let found = 0;
  for (let i = at; i < at + BLOCK; i++) if (Math.abs(values[i]) > Math.abs(found)) found = values[i];
  return found;
}

/** Scale = largest magnitude / 127, codes from -127 to 127. */
const q8_0: Quantizer = {
  type: "Q8_0",
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

/** Scale = the extreme value / -8, so that it has a code of its own; byte j has the codes of j and j + 16. */
const q4_0: Quantizer = {
  type: "Q4_0",
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

/** The nearest E2M1 code to a magnitude; halfway goes to the even code. */
function nearestE2m1(magnitude: number): number {
  if (magnitude < 1.75) {
    if (magnitude <= 0.25) return 0;
    return magnitude < 0.75 ? 1 : magnitude <= 1.25 ? 2 : 3;
  }
  if (magnitude <= 2.5) return 4;
  return magnitude < 3.5 ? 5 : magnitude <= 5 ? 6 : 7;
}

/** Codes of a block under the exponent; returns the sum of the squared errors. */
function encodeE2m1(
  values: Float32Array,
  at: number,
  exponent: number,
  codes: Uint8Array,
  restored: Float32Array,
): number {
  const scale = 2 ** (exponent - 127);
  const inverse = 1 / scale; // exact
  let error = 0;
  for (let i = 0; i < BLOCK; i++) {
    const value = values[at + i];
    const code = nearestE2m1(Math.abs(value) * inverse);
    codes[i] = value < 0 ? code | 8 : code;
    const held = (value < 0 ? -E2M1[code] : E2M1[code]) * scale;
    restored[i] = held;
    error += (value - held) * (value - held);
  }
  return error;
}

/** E8M0's largest exponent that is a number. */
const MAX_EXPONENT = 254;
const codes = [new Uint8Array(BLOCK), new Uint8Array(BLOCK)];
const spare = new Float32Array(BLOCK);

/** Of the two exponents that bring the largest magnitude to 4 to 8 or 2 to 4, the one with the smaller error. */
const mxfp4: Quantizer = {
  type: "MXFP4",
  bytes: 17,
  block(values, at, out, to, restored) {
    const largest = Math.abs(extreme(values, at));
    const wanted = largest === 0 ? 0 : Math.floor(Math.log2(largest)) - 2 + 127;
    let exponent = Math.max(0, Math.min(MAX_EXPONENT, wanted));
    let chosen = codes[0];
    const error = encodeE2m1(values, at, exponent, codes[0], restored);
    if (exponent < MAX_EXPONENT && encodeE2m1(values, at, exponent + 1, codes[1], spare) < error) {
      exponent++;
      chosen = codes[1];
      restored.set(spare);
    }
    out[to] = exponent;
    for (let i = 0; i < 16; i++) out[to + 1 + i] = chosen[i] | chosen[i + 16] << 4;
    return true;
  },
};

export const QUANTIZERS: Readonly<Record<QuantizeTo, Quantizer>> = { q8_0, q4_0, mxfp4 };
