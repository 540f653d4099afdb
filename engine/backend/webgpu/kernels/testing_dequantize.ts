/**
 * The definitions of the file formats, written as plainly as possible: GPU kernels are compared with them.
 */
import { layoutOf } from "../../../gguf/tensor_types.ts";
import type { GpuType } from "./formats/registry.ts";
import type { TensorType } from "../../../gguf/types.ts";

type Block = DataView;
const u8 = (b: Block, at: number) => b.getUint8(at);
const f16 = (b: Block, at: number) => b.getFloat16(at, true);
/** Returns the nibble of column k where columns k and k + 16 share a byte. */
const nibble = (b: Block, at: number, k: number) => u8(b, at + k % 16) >> (k < 16 ? 0 : 4) & 15;
const bit = (b: Block, at: number, k: number) => u8(b, at + (k >> 3)) >> (k & 7) & 1;
/** Returns the nibble of column k of 256 where 64 columns share 32 bytes. */
const nibbleK = (b: Block, at: number, k: number) =>
  u8(b, at + (k >> 6) * 32 + k % 32) >> (k % 64 < 32 ? 0 : 4) & 15;
const twoBits = (b: Block, at: number, k: number) =>
  u8(b, at + (k >> 7) * 32 + k % 32) >> 2 * (k % 128 >> 5) & 3;

const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

function scaleMin(b: Block, j: number): [number, number] {
  const p = (i: number) => u8(b, 4 + i);
  if (j < 4) return [p(j) & 63, p(j + 4) & 63];
  return [p(j + 4) & 15 | p(j - 4) >> 6 << 4, p(j + 4) >> 4 | p(j) >> 6 << 4];
}

function scale6(b: Block, at: number, j: number): number {
  return (u8(b, at + j % 8) >> (j >> 3) * 4 & 15 | (u8(b, at + 8 + j % 4) >> (j >> 2) * 2 & 3) << 4) - 32;
}

function q6Code(b: Block, k: number): number {
  const [half, run, i] = [k >> 7, k % 128 >> 5, k % 32];
  const low = u8(b, 64 * half + run % 2 * 32 + i) >> 4 * (run >> 1) & 15;
  return low | (u8(b, 128 + 32 * half + i) >> 2 * run & 3) << 4;
}

/** Returns column k of a block. */
const VALUE: Readonly<Record<GpuType, (b: Block, k: number) => number>> = {
  F32: (b) => b.getFloat32(0, true),
  F16: (b) => f16(b, 0),
  BF16: (b) => {
    const wide = new DataView(new ArrayBuffer(4));
    wide.setUint32(0, b.getUint16(0, true) << 16);
    return wide.getFloat32(0);
  },
  Q4_0: (b, k) => f16(b, 0) * (nibble(b, 2, k) - 8),
  Q4_1: (b, k) => f16(b, 0) * nibble(b, 4, k) + f16(b, 2),
  Q5_0: (b, k) => f16(b, 0) * ((nibble(b, 6, k) | bit(b, 2, k) << 4) - 16),
  Q5_1: (b, k) => f16(b, 0) * (nibble(b, 8, k) | bit(b, 4, k) << 4) + f16(b, 2),
  Q8_0: (b, k) => f16(b, 0) * b.getInt8(2 + k),
  Q2_K: (b, k) => {
    const packed = u8(b, k >> 4);
    return f16(b, 80) * (packed & 15) * twoBits(b, 16, k) - f16(b, 82) * (packed >> 4);
  },
  Q3_K: (b, k) => {
    const code = (twoBits(b, 32, k) | (u8(b, k % 32) >> (k >> 5) & 1) << 2) - 4;
    return f16(b, 108) * scale6(b, 96, k >> 4) * code;
  },
  Q4_K: (b, k) => {
    const [scale, min] = scaleMin(b, k >> 5);
    return f16(b, 0) * scale * nibbleK(b, 16, k) - f16(b, 2) * min;
  },
  Q5_K: (b, k) => {
    const [scale, min] = scaleMin(b, k >> 5);
    const code = nibbleK(b, 48, k) | (u8(b, 16 + k % 32) >> (k >> 5) & 1) << 4;
    return f16(b, 0) * scale * code - f16(b, 2) * min;
  },
  Q6_K: (b, k) => f16(b, 208) * b.getInt8(192 + (k >> 4)) * (q6Code(b, k) - 32),
  IQ4_NL: (b, k) => f16(b, 0) * IQ4[nibble(b, 2, k)],
  IQ4_XS: (b, k) => {
    const j = k >> 5;
    const scale = u8(b, 4 + (j >> 1)) >> (j & 1) * 4 & 15 | (u8(b, 2 + (j >> 2)) >> (j & 3) * 2 & 3) << 4;
    return f16(b, 0) * (scale - 32) * IQ4[nibble(b, 8 + 16 * j, k % 32)];
  },
  MXFP4: (b, k) => 2 ** (u8(b, 0) - 127) * E2M1[nibble(b, 1, k)],
};

/** Returns `count` values of a type in float64. */
export function dequantize(type: TensorType, bytes: Uint8Array, count: number): Float64Array {
  const { elements, bytes: size } = layoutOf(type);
  return Float64Array.from({ length: count }, (_, i) => {
    const at = bytes.byteOffset + Math.floor(i / elements) * size;
    return VALUE[type as GpuType](new DataView(bytes.buffer, at, size), i % elements);
  });
}
