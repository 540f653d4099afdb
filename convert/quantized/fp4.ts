import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { type ExactBlocks, isFloat, type SafeTensor } from "../checkpoint/tensors.ts";
import { E2M1, interleave } from "../quantize/quantizers.ts";
import { computedBlocks, computedFloats } from "./computed.ts";
import { CODES, readNumbers, refuseTensor, sizeOf, wrongShape } from "./numbers.ts";

/** A matrix in NVFP4: E2M1 codes, two per byte, and E4M3 scales, one per 16 columns. */
export interface Nvfp4 {
  readonly name: string;
  /** Format in the checkpoint, for the report. */
  readonly format: string;
  readonly codes: SafeTensor; // [rows, columns / 2], bytes, or words with the same bits
  readonly scales: SafeTensor; // bytes [rows, columns / 16]
  /** The value of a code is code x scale x `factor` / `divisor`. */
  readonly factor: number;
  readonly divisor?: number;
}

const GROUP = 16;
const MX_GROUP = 32;
/** Columns and bytes of GGUF's block. */
const BLOCK = { columns: 64, bytes: 36 };

/** Returns a float tensor with the values, and GGUF's NVFP4 blocks with the same bits if rows are whole blocks. */
export function nvfp4Floats(checkpoint: Checkpoint, matrix: Nvfp4): SafeTensor {
  const { name, format, codes, scales, factor, divisor = 1 } = matrix;
  const { file } = codes;
  const groups = scales.shape[1];
  const columns = groups * GROUP;
  const shape = [codes.shape[0], columns];
  if (
    scales.shape.length !== 2 || codes.byteLength !== shape[0] * columns / 2 || scales.shape[0] !== shape[0]
  ) {
    wrongShape(scales, `rows x columns / ${GROUP} for the weight's shape ${codes.shape.join(" x ")}`);
  }
  const read = (start: number, count: number) => {
    const found = [new Uint8Array(count * columns / 2), new Uint8Array(count * groups)] as const;
    checkpoint.read(codes, start * columns / 2, found[0]);
    checkpoint.read(scales, start * groups, found[1]);
    // GGUF's readers ignore a scale's sign, and read the code 127 (NaN) as 0.
    const wrong = found[1].find((scale) => scale >= 127 && scale !== 128);
    if (wrong !== undefined) {
      refuseTensor(scales, `must have positive finite E4M3 scales (got code ${wrong})`);
    }
    return found;
  };
  const floats = computedFloats(checkpoint, { name, file, shape, format }, "F32", (start, out) => {
    const [bytes, codesOfScales] = read(start, out.length / columns);
    const values = CODES.F8_E4M3!;
    for (let i = 0; i < out.length; i++) {
      const code = bytes[i >> 1] >> 4 * (i & 1) & 15;
      const value = E2M1[code & 7] * values[codesOfScales[Math.floor(i / GROUP)]];
      out[i] = (code & 8 ? -value : value) * factor / divisor;
    }
  });
  if (columns % BLOCK.columns !== 0) return floats;
  const weight = computedBlocks(checkpoint, { name, file, shape, format }, "NVFP4", (start, out) => {
    const blocks = out.length / BLOCK.bytes;
    const [bytes, found] = read(start, blocks * BLOCK.columns / columns);
    for (let block = 0; block < blocks; block++) {
      const to = block * BLOCK.bytes;
      for (let i = 0; i < 4; i++) {
        out[to + i] = found[4 * block + i] & 127;
        interleave(bytes, 32 * block + 8 * i, out, to + 4 + 8 * i, 8);
      }
    }
  });
  const blocks: ExactBlocks = { kind: "NVFP4", weight, factor: Math.fround(factor / divisor) };
  return { ...floats, blocks };
}

/** Reads compressed-tensors' NVFP4, whose global scale is a divisor, and MXFP4, which has no global scale. */
export function compressedFp4(
  checkpoint: Checkpoint,
  codes: SafeTensor,
  scales: SafeTensor,
  divisor: SafeTensor | undefined,
  name: string,
): SafeTensor {
  if (!divisor && scales.dtype === "U8") return mxfp4Floats(checkpoint, { name, codes, scales });
  if (!divisor) refuseTensor(codes, `needs a tensor "weight_global_scale" beside it`);
  checkE4m3(scales);
  const format = "compressed-tensors NVFP4";
  return nvfp4Floats(checkpoint, {
    name,
    format,
    codes,
    scales,
    factor: 1,
    divisor: single(checkpoint, divisor),
  });
}

/** Reads ModelOpt's NVFP4, whose second scale is a factor. */
export function modelOptFp4(
  checkpoint: Checkpoint,
  codes: SafeTensor,
  scales: SafeTensor,
  second: SafeTensor | undefined,
  name: string,
): SafeTensor {
  checkE4m3(scales);
  const factor = second ? single(checkpoint, second) : 1;
  return nvfp4Floats(checkpoint, { name, format: "ModelOpt NVFP4", codes, scales, factor });
}

function checkE4m3(scales: SafeTensor): void {
  if (scales.dtype !== "F8_E4M3") refuseTensor(scales, `must have dtype F8_E4M3 (got ${scales.dtype})`);
}

/** Returns the value of a tensor that holds one positive float. Throws ConvertError for any other tensor. */
function single(checkpoint: Checkpoint, tensor: SafeTensor): number {
  if (!isFloat(tensor.dtype)) refuseTensor(tensor, `must have dtype F32, F16 or BF16 (got ${tensor.dtype})`);
  if (tensor.byteLength !== sizeOf(tensor)) wrongShape(tensor, "1, a single value");
  const [value] = readNumbers(checkpoint, tensor);
  // Within this range, the product with the other scale and the code stays within f32.
  if (value > 2 ** -100 && value < 2 ** 100) return value;
  return refuseTensor(tensor, `must be a factor from 2^-100 to 2^100 (got ${value})`);
}

/**
 * Returns an F32 tensor with a matrix's MXFP4 values, and MXFP4 blocks with the same bits. 32 columns share an
 * exponent.
 */
function mxfp4Floats(
  checkpoint: Checkpoint,
  { name, codes, scales }: Pick<Nvfp4, "name" | "codes" | "scales">,
): SafeTensor {
  const [rows, groups] = scales.shape;
  const columns = groups * MX_GROUP;
  if (scales.shape.length !== 2 || codes.shape[0] !== rows || codes.byteLength !== rows * columns / 2) {
    wrongShape(scales, `rows x columns / ${MX_GROUP} for the weight's shape ${codes.shape.join(" x ")}`);
  }
  const about = { name, file: codes.file, shape: [rows, columns], format: "compressed-tensors MXFP4" };
  const floats = computedFloats(checkpoint, about, "F32", (start, out) => {
    const bytes = new Uint8Array(out.length / 2);
    checkpoint.read(codes, start * columns / 2, bytes);
    const exponents = new Uint8Array(out.length / MX_GROUP);
    checkpoint.read(scales, start * groups, exponents);
    for (let i = 0; i < out.length; i++) {
      const code = bytes[i >> 1] >> 4 * (i & 1) & 15;
      const value = E2M1[code & 7] * CODES.F8_E8M0![exponents[Math.floor(i / MX_GROUP)]];
      out[i] = code & 8 ? -value : value;
    }
    if (!out.every(Number.isFinite)) refuseTensor(scales, "must have scales below 255 (got 255, E8M0's NaN)");
  });
  return { ...floats, blocks: { kind: "MXFP4", weight: { ...codes, format: about.format }, scales } };
}
