import { quote } from "../../engine/gguf/errors.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { toFloats } from "../checkpoint/floats.ts";
import { DTYPES, type FloatType, type SafeTensor } from "../checkpoint/tensors.ts";
import { refuse } from "../errors.ts";

/** Values of the 8-bit types by code. Infinities of floats become NaN. */
export const CODES: { readonly [dtype in SafeTensor["dtype"]]?: Float32Array } = {
  F8_E4M3: Float32Array.from({ length: 256 }, (_, code) => (code & 127) === 127 ? NaN : small(code, 3)),
  F8_E5M2: Float32Array.from({ length: 256 }, (_, code) => (code & 124) === 124 ? NaN : small(code, 2)),
  F8_E8M0: Float32Array.from({ length: 256 }, (_, code) => code === 255 ? NaN : 2 ** (code - 127)),
  I8: Float32Array.from({ length: 256 }, (_, code) => code << 24 >> 24),
};

/** Returns the value of an 8-bit float, which has a sign bit and `bits` bits of mantissa. */
function small(code: number, bits: number): number {
  const [exponent, mantissa] = [(code & 127) >> bits, code & (1 << bits) - 1];
  const bias = (1 << 6 - bits) - 1;
  const magnitude = exponent === 0
    ? mantissa * 2 ** (1 - bias - bits)
    : (1 + mantissa / (1 << bits)) * 2 ** (exponent - bias);
  return code & 128 ? -magnitude : magnitude;
}

export function refuseTensor({ file, name }: SafeTensor, detail: string): never {
  refuse(file, `tensor ${quote(name)}`, detail);
}

export function wrongShape(tensor: SafeTensor, allowed: string): never {
  refuseTensor(tensor, `must have shape ${allowed} (got ${tensor.shape.join(" x ") || "a single value"})`);
}

/** Returns `length` values of a float tensor from element `start` on, by default all. */
export function readNumbers(
  checkpoint: Checkpoint,
  tensor: SafeTensor,
  start = 0,
  length: number = tensor.shape.reduce((product, size) => product * size, 1) - start,
): Float32Array {
  const bytes = new Uint8Array(length * sizeOf(tensor));
  checkpoint.read(tensor, start * sizeOf(tensor), bytes);
  return toNumbers(tensor, bytes);
}

/** Returns the values of `bytes`, which hold elements of the tensor's type. */
export function toNumbers({ dtype }: SafeTensor, bytes: Uint8Array): Float32Array {
  const codes = CODES[dtype];
  return codes ? Float32Array.from(bytes, (code) => codes[code]) : toFloats(dtype as FloatType, bytes);
}

/** Returns the number of bytes of an element. */
export const sizeOf = ({ dtype }: SafeTensor): number => DTYPES[dtype];

/** Throws ConvertError for a type that scales cannot have. */
export function checkScaleType(scales: SafeTensor): void {
  if (["F32", "F16", "BF16", "F8_E4M3", "F8_E8M0"].includes(scales.dtype)) return;
  refuseTensor(scales, `must have dtype F32, F16, BF16, F8_E4M3 or F8_E8M0 (got ${scales.dtype})`);
}

/** Throws ConvertError if a scale is negative or not finite. */
export function checkScales(scales: SafeTensor, values: Float32Array): void {
  const wrong = values.find((scale) => !(scale >= 0 && scale < Infinity));
  if (wrong !== undefined) refuseTensor(scales, `must have finite scales of at least 0 (got ${wrong})`);
}

/** Returns whether f16 holds all values exactly. */
export function fitHalf(values: Float32Array): boolean {
  const half = new Float16Array(values);
  return values.every((value, i) => half[i] === value && Number.isFinite(value));
}
