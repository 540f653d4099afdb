import { byteLengthOf, layoutOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Random } from "../random.ts";

const SIGMA = 0.02;

/**
 * Half floats of a block: their offset, and their value for a standard deviation of 1. A scale is 1 / the standard
 * deviation of uniformly random codes, and a min centres the codes.
 */
interface Scales {
  readonly halves: readonly (readonly [at: number, value: number])[];
  /** Quantizers write these scales with either sign. */
  readonly signed?: boolean;
}

const SCALES: Partial<Readonly<Record<TensorType, Scales>>> = {
  Q4_0: { halves: [[0, 1 / 4.61]], signed: true },
  Q4_1: { halves: [[0, 1 / 4.61], [2, -7.5 / 4.61]] },
  Q5_0: { halves: [[0, 1 / 9.23]], signed: true },
  Q5_1: { halves: [[0, 1 / 9.23], [2, -15.5 / 9.23]] },
  Q8_0: { halves: [[0, 1 / 73.9]] },
  Q2_K: { halves: [[80, 1 / 13.9], [82, 1.5 / 13.9]] },
  Q3_K: { halves: [[108, 1 / 43.3]], signed: true },
  Q4_K: { halves: [[0, 1 / 258], [2, 7.5 / 258]] },
  Q5_K: { halves: [[0, 1 / 527], [2, 15.5 / 527]] },
  Q6_K: { halves: [[208, 1 / 1367]], signed: true },
  IQ1_S: { halves: [[0, 1 / 7.19]] },
  IQ2_XXS: { halves: [[0, 1 / 53.4]] },
  IQ2_XS: { halves: [[0, 1 / 55.7]] },
  IQ2_S: { halves: [[0, 1 / 56.5]] },
  IQ3_XXS: { halves: [[0, 1 / 143]] },
  IQ3_S: { halves: [[0, 1 / 140]] },
  IQ4_NL: { halves: [[0, 1 / 67.4]], signed: true },
  IQ4_XS: { halves: [[0, 1 / 1247]], signed: true },
  TQ1_0: { halves: [[52, 1 / 0.817]] },
  TQ2_0: { halves: [[64, 1 / 0.707]] },
};
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
    const { halves, signed } = SCALES[type]!;
    const scale = SIGMA * (0.7 + 0.6 * random.unit()) * (signed && random.below(2) ? -1 : 1);
    for (const [at, value] of halves) view.setFloat16(block + at, scale * value, true);
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

/** Returns the E4M3 byte of a number that E4M3 represents exactly and not as a subnormal. */
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
