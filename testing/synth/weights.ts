/** Random weights of every format, and the plain definitions of the formats that kernels are compared with. */
import type { GpuType } from "../../engine/backend/webgpu/kernels/formats/registry.ts";
import { type GRID_TEXTS, pointsOf } from "../../convert/quantize/grids.ts";
import { byteLengthOf, layoutOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Random } from "../random.ts";

type Block = DataView;
const u8 = (b: Block, at: number) => b.getUint8(at);
const f16 = (b: Block, at: number) => b.getFloat16(at, true);
/** Returns the 4-bit code of column k; columns k and k + 16 share a byte. */
const nibble = (b: Block, at: number, k: number) => u8(b, at + k % 16) >> (k < 16 ? 0 : 4) & 15;
const bit = (b: Block, at: number, k: number) => u8(b, at + (k >> 3)) >> (k & 7) & 1;
/** Returns the 4-bit code of column k of 256; 64 columns share 32 bytes. */
const nibbleK = (b: Block, at: number, k: number) =>
  u8(b, at + (k >> 6) * 32 + k % 32) >> (k % 64 < 32 ? 0 : 4) & 15;
const twoBits = (b: Block, at: number, k: number) =>
  u8(b, at + (k >> 7) * 32 + k % 32) >> 2 * (k % 128 >> 5) & 3;

const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Returns a function that returns code `k` of point `index`. Its first call decodes the grid. */
function grid(name: keyof typeof GRID_TEXTS, bits: 2 | 4): (index: number, k: number) => number {
  let points: Uint16Array | undefined;
  return (index, k) => (points ??= pointsOf(name))[index] >> bits * k & (1 << bits) - 1;
}

const IQ1 = grid("IQ1", 2);
const IQ2_XXS = grid("IQ2_XXS", 2);
const IQ2_XS = grid("IQ2_XS", 2);
const IQ2_S = grid("IQ2_S", 2);
const IQ3_XXS = grid("IQ3_XXS", 4);
const IQ3_S = grid("IQ3_S", 4);
const IQ2_MAGNITUDES = [8, 25, 43];
const IQ3_MAGNITUDES = [4, 12, 20, 28, 36, 44, 52, 62];
const nibbleOf = (b: Block, at: number, j: number) => u8(b, at + (j >> 1)) >> 4 * (j & 1) & 15;
/** Returns the sign of value `k`, 1 or -1. Seven signs are stored; the eighth makes the number of negatives even. */
function evenSign(seven: number, k: number): number {
  const ones = seven.toString(2).replaceAll("0", "").length;
  return (k < 7 ? seven >> k & 1 : ones & 1) ? -1 : 1;
}
/** Returns the value of column `k` plus 1/8, or minus 1/8 with `isLess`. */
const iq1 = (index: number, k: number, isLess: boolean) => IQ1(index, k % 8) - 1 + (isLess ? -1 / 8 : 1 / 8);
/** Returns base-3 digit `n` of the fraction byte / 256. */
const digit = (byte: number, n: number) => (byte * 3 ** n & 255) * 3 >> 8;

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

/** Facts about a format. */
interface FormatFacts {
  /** Returns column k of a block, as plainly as possible: kernels are compared with this result. */
  readonly value?: (b: Block, k: number) => number;
  /**
   * Half floats of a block: their offset, and the value that gives weights a standard deviation of 1. A scale is 1
   * divided by the standard deviation of uniformly random codes. A min makes the mean of the weights 0.
   */
  readonly halves?: readonly (readonly [at: number, value: number])[];
  /** Whether quantizers write these scales with either sign. */
  readonly signed?: boolean;
}

/** Facts about the formats. `weights` draws the types without `halves` separately. */
const FORMAT_FACTS: {
  readonly [T in TensorType]: T extends GpuType ? FormatFacts & { value: unknown } : FormatFacts;
} = {
  F32: { value: (b) => b.getFloat32(0, true) },
  F16: { value: (b) => f16(b, 0) },
  Q4_0: { value: (b, k) => f16(b, 0) * (nibble(b, 2, k) - 8), halves: [[0, 1 / 4.61]], signed: true },
  Q4_1: {
    value: (b, k) => f16(b, 0) * nibble(b, 4, k) + f16(b, 2),
    halves: [[0, 1 / 4.61], [2, -7.5 / 4.61]],
  },
  Q5_0: {
    value: (b, k) => f16(b, 0) * ((nibble(b, 6, k) | bit(b, 2, k) << 4) - 16),
    halves: [[0, 1 / 9.23]],
    signed: true,
  },
  Q5_1: {
    value: (b, k) => f16(b, 0) * (nibble(b, 8, k) | bit(b, 4, k) << 4) + f16(b, 2),
    halves: [[0, 1 / 9.23], [2, -15.5 / 9.23]],
  },
  Q8_0: { value: (b, k) => f16(b, 0) * b.getInt8(2 + k), halves: [[0, 1 / 73.9]] },
  Q2_K: {
    value: (b, k) => {
      const packed = u8(b, k >> 4);
      return f16(b, 80) * (packed & 15) * twoBits(b, 16, k) - f16(b, 82) * (packed >> 4);
    },
    halves: [[80, 1 / 13.9], [82, 1.5 / 13.9]],
  },
  Q3_K: {
    value: (b, k) => {
      const code = (twoBits(b, 32, k) | (u8(b, k % 32) >> (k >> 5) & 1) << 2) - 4;
      return f16(b, 108) * scale6(b, 96, k >> 4) * code;
    },
    halves: [[108, 1 / 43.3]],
    signed: true,
  },
  Q4_K: {
    value: (b, k) => {
      const [scale, min] = scaleMin(b, k >> 5);
      return f16(b, 0) * scale * nibbleK(b, 16, k) - f16(b, 2) * min;
    },
    halves: [[0, 1 / 258], [2, 7.5 / 258]],
  },
  Q5_K: {
    value: (b, k) => {
      const [scale, min] = scaleMin(b, k >> 5);
      const code = nibbleK(b, 48, k) | (u8(b, 16 + k % 32) >> (k >> 5) & 1) << 4;
      return f16(b, 0) * scale * code - f16(b, 2) * min;
    },
    halves: [[0, 1 / 527], [2, 15.5 / 527]],
  },
  Q6_K: {
    value: (b, k) => f16(b, 208) * b.getInt8(192 + (k >> 4)) * (q6Code(b, k) - 32),
    halves: [[208, 1 / 1367]],
    signed: true,
  },
  IQ2_XXS: {
    value: (b, k) => {
      const word = b.getUint32(6 + (k >> 5) * 8, true);
      const code = IQ2_XXS(u8(b, 2 + (k >> 5) * 8 + (k >> 3) % 4), k % 8);
      const sign = evenSign(word >>> 7 * ((k >> 3) % 4) & 127, k % 8);
      return f16(b, 0) * (0.5 + (word >>> 28)) / 4 * IQ2_MAGNITUDES[code] * sign;
    },
    halves: [[0, 1 / 53.4]],
  },
  IQ2_XS: {
    value: (b, k) => {
      const word = b.getUint16(2 + 2 * (k >> 3), true);
      const sign = evenSign(word >> 9, k % 8);
      return f16(b, 0) * (0.5 + nibbleOf(b, 66, k >> 4)) / 4 * IQ2_MAGNITUDES[IQ2_XS(word & 511, k % 8)] *
        sign;
    },
    halves: [[0, 1 / 55.7]],
  },
  IQ3_XXS: {
    value: (b, k) => {
      const word = b.getUint32(66 + 4 * (k >> 5), true);
      const sign = evenSign(word >>> 7 * ((k >> 3) % 4) & 127, k % 8);
      const code = IQ3_XXS(u8(b, 2 + (k >> 2)), k % 4);
      return f16(b, 0) * (0.5 + (word >>> 28)) / 2 * IQ3_MAGNITUDES[code] * sign;
    },
    halves: [[0, 1 / 143]],
  },
  IQ1_S: {
    value: (b, k) => {
      const head = b.getUint16(34 + 2 * (k >> 5), true);
      const index = u8(b, 2 + (k >> 3)) | (head >> 3 * ((k >> 3) % 4) & 7) << 8;
      return f16(b, 0) * (2 * (head >> 12 & 7) + 1) * iq1(index, k, head >> 15 === 1);
    },
    halves: [[0, 1 / 7.19]],
  },
  IQ4_NL: { value: (b, k) => f16(b, 0) * IQ4[nibble(b, 2, k)], halves: [[0, 1 / 67.4]], signed: true },
  IQ3_S: {
    value: (b, k) => {
      const index = u8(b, 2 + (k >> 2)) | bit(b, 66, k >> 2) << 8;
      const sign = bit(b, 74, k) ? -1 : 1;
      return f16(b, 0) * (1 + 2 * nibbleOf(b, 106, k >> 5)) * (2 * IQ3_S(index, k % 4) + 1) * sign;
    },
    halves: [[0, 1 / 140]],
  },
  IQ2_S: {
    value: (b, k) => {
      const index = u8(b, 2 + (k >> 3)) | (u8(b, 66 + (k >> 5)) >> 2 * ((k >> 3) % 4) & 3) << 8;
      const sign = bit(b, 34, k) ? -1 : 1;
      return f16(b, 0) * (0.5 + nibbleOf(b, 74, k >> 4)) / 4 * IQ2_MAGNITUDES[IQ2_S(index, k % 8)] * sign;
    },
    halves: [[0, 1 / 56.5]],
  },
  IQ4_XS: {
    value: (b, k) => {
      const j = k >> 5;
      const scale = u8(b, 4 + (j >> 1)) >> (j & 1) * 4 & 15 | (u8(b, 2 + (j >> 2)) >> (j & 3) * 2 & 3) << 4;
      return f16(b, 0) * (scale - 32) * IQ4[nibble(b, 8 + 16 * j, k % 32)];
    },
    halves: [[0, 1 / 1247]],
    signed: true,
  },
  IQ1_M: {
    value: (b, k) => {
      const word = (i: number) => b.getUint16(48 + 2 * i, true);
      const half = [0, 1, 2, 3].reduce((sum, i) => sum | word(i) >> 12 << 4 * i, 0);
      const d = new Float16Array(Uint16Array.of(half).buffer)[0];
      const high = nibbleOf(b, 32, k >> 3);
      const scale = word(k >> 6) >> 3 * ((k >> 4) % 4) & 7;
      return d * (2 * scale + 1) * iq1(u8(b, k >> 3) | (high & 7) << 8, k, high > 7);
    },
  },
  BF16: {
    value: (b) => {
      const wide = new DataView(new ArrayBuffer(4));
      wide.setUint32(0, b.getUint16(0, true) << 16);
      return wide.getFloat32(0);
    },
  },
  TQ1_0: {
    value: (b, k) => {
      if (k < 160) return f16(b, 52) * (digit(u8(b, k % 32), k >> 5) - 1);
      const [byte, n] = k < 240 ? [32 + k % 16, (k - 160) >> 4] : [48 + k % 4, (k - 240) >> 2];
      return f16(b, 52) * (digit(u8(b, byte), n) - 1);
    },
    halves: [[52, 1 / 0.817]],
  },
  TQ2_0: { value: (b, k) => f16(b, 64) * (twoBits(b, 0, k) - 1), halves: [[64, 1 / 0.707]] },
  MXFP4: { value: (b, k) => 2 ** (u8(b, 0) - 127) * E2M1[nibble(b, 1, k)] },
  NVFP4: {
    value(b, k) {
      const byte = u8(b, 4 + (k >> 4) * 8 + k % 8);
      return e4m3Value(u8(b, k >> 4)) * E2M1[k % 16 < 8 ? byte & 15 : byte >> 4];
    },
  },
  Q1_0: { value: (b, k) => bit(b, 2, k) ? f16(b, 0) : -f16(b, 0), halves: [[0, 1]] },
  Q2_0: {
    value: (b, k) => f16(b, 0) * ((u8(b, 2 + (k >> 2)) >> 2 * (k & 3) & 3) - 1),
    halves: [[0, 1 / 1.22]],
    signed: true,
  },
};

/** Returns the value of a positive E4M3 number. */
function e4m3Value(code: number): number {
  return code < 8 ? code / 512 : (8 + (code & 7)) * 2 ** ((code >> 3) - 10);
}

/** Returns `count` values of a type in float64. */
export function dequantize(type: TensorType, bytes: Uint8Array, count: number): Float64Array {
  const { elements, bytes: size } = layoutOf(type);
  // All blocks are read at once, because one block per value would be slow.
  const { buffer } = bytes.slice(0, count * size);
  if (type === "F32") return Float64Array.from(new Float32Array(buffer));
  if (type === "F16") return Float64Array.from(new Float16Array(buffer));
  if (type === "BF16") {
    const words = Uint32Array.from(new Uint16Array(buffer), (half) => half << 16);
    return Float64Array.from(new Float32Array(words.buffer));
  }
  const value = FORMAT_FACTS[type].value!;
  const values = new Float64Array(count);
  for (let first = 0; first < count; first += elements) {
    const block = new DataView(bytes.buffer, bytes.byteOffset + first / elements * size, size);
    const end = Math.min(count, first + elements);
    for (let i = first; i < end; i++) values[i] = value(block, i - first);
  }
  return values;
}

const SIGMA = 0.02;

/** The scale of IQ1_M, which is stored in four parts. */
const IQ1_M_SCALE = 1 / 7.2;

/** Returns `count` random weights of a type. */
export function weights(type: TensorType, count: number, random: Random): ArrayBufferView {
  switch (type) {
    case "F32":
      return random.normals(new Float32Array(count), SIGMA);
    case "F16":
      return random.normals(new Float16Array(count), SIGMA);
    case "BF16": {
      const words = new Uint32Array(random.normals(new Float32Array(count), SIGMA).buffer);
      const halves = new Uint16Array(count);
      for (let i = 0; i < count; i++) halves[i] = (words[i] + 0x8000) >>> 16;
      return halves;
    }
    default:
      return blocks(type, count, random);
  }
}

function blocks(type: TensorType, count: number, random: Random): Uint8Array {
  const bytes = random.bytes(byteLengthOf(type, count));
  const view = new DataView(bytes.buffer);
  const size = layoutOf(type).bytes;
  for (let block = 0; block < bytes.length; block += size) {
    // An MXFP4 block has an exponent. Its values have a standard deviation of about 5.9 x 2^(exponent - 128).
    if (type === "MXFP4") {
      bytes[block] = 118 + random.below(3);
      continue;
    }
    // An NVFP4 block has four E4M3 scales. The codes have a standard deviation of about 2.9.
    if (type === "NVFP4") {
      for (let i = 0; i < 4; i++) bytes[block + i] = 2 + random.below(4);
      continue;
    }
    if (type === "IQ1_M") {
      putScattered(view, block + 48, IQ1_M_SCALE * SIGMA * (0.7 + 0.6 * random.unit()));
      continue;
    }
    // No quantizer writes the fourth code, so its high bit is cleared.
    if (type === "TQ2_0") {
      for (let i = 0; i < 64; i++) bytes[block + i] &= ~(bytes[block + i] << 1 & 0xaa);
    }
    const { halves, signed } = FORMAT_FACTS[type];
    const scale = SIGMA * (0.7 + 0.6 * random.unit()) * (signed && random.below(2) ? -1 : 1);
    for (const [at, value] of halves!) view.setFloat16(block + at, scale * value, true);
  }
  return bytes;
}

/** Powers of two that are moved from the scales of an NVFP4 matrix or expert to its separate factor. */
const POWERS = [6, 5, 7] as const;

/** Returns the NVFP4 blocks of `count` matrices with larger scales, and the factors that restore the same values. */
export function withFactors(
  blocks: ArrayBufferView,
  count: number,
): [blocks: Uint8Array, factors: Float32Array] {
  const bytes = new Uint8Array(blocks.buffer, blocks.byteOffset, blocks.byteLength).slice();
  const power = (matrix: number) => POWERS[matrix % POWERS.length];
  const size = layoutOf("NVFP4").bytes;
  for (let block = 0; block < bytes.length; block += size) {
    const by = 2 ** power(Math.floor(block / (bytes.length / count)));
    for (let i = block; i < block + 4; i++) bytes[i] = e4m3(bytes[i] * 2 ** -9 * by);
  }
  return [bytes, Float32Array.from({ length: count }, (_, matrix) => 2 ** -power(matrix))];
}

/** Returns the E4M3 byte of a number that E4M3 represents exactly as a normal number. */
function e4m3(value: number): number {
  const exponent = Math.floor(Math.log2(value));
  return (exponent + 7) * 8 + (value / 2 ** exponent - 1) * 8;
}

/** Writes a half float into the highest nibbles of four words, lowest nibble first. */
function putScattered(view: DataView, at: number, value: number): void {
  const half = new Uint16Array(Float16Array.of(value).buffer)[0];
  for (let i = 0; i < 4; i++) {
    const low = view.getUint16(at + 2 * i, true) & 0xfff;
    view.setUint16(at + 2 * i, low | (half >> 4 * i & 15) << 12, true);
  }
}
