import { quote } from "../../engine/gguf/errors.ts";
import { layoutOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { refuse } from "../errors.ts";
import { toFloats } from "../checkpoint/floats.ts";
import { type FloatType, isFloat, type MatrixSource, type SafeTensor } from "../checkpoint/tensors.ts";
import type { RowWeights } from "./blocks.ts";
import type { QuantizeTo } from "./quantize_to.ts";
import type { QuantizerThreads } from "./quantizer_threads.ts";
import { BLOCK, E2M1, interleave, type Quantizer } from "./quantizers.ts";

/** The same rows of each tensor of a matrix: weight, then scales and biases if any. */
export type RowParts = readonly Uint8Array[];

/** Error of a tensor against its source. */
export interface QuantizationError {
  /** RMS error divided by the RMS of the values. */
  readonly relativeRms: number;
  /** Largest absolute error. */
  readonly max: number;
}

/** Turns whole rows of a checkpoint's matrix into rows of a GGUF tensor. */
export interface RowEncoder {
  readonly type: TensorType;
  /** Number of columns per block of the result. */
  readonly block: number;
  /** Encodes rows. Promises resolve in the order of the calls. */
  encode(rows: RowParts): Uint8Array | Promise<Uint8Array>;
  /** Returns the error over all rows so far; undefined for a lossless encoder. */
  error?(): QuantizationError;
}

/** Returns the tensors of a matrix, in the order of RowParts. */
export function partsOf(source: MatrixSource): SafeTensor[] {
  switch (source.kind) {
    case "MXFP4":
      return [source.weight, source.scales];
    case "affine":
      return [source.weight, source.scales, source.biases];
    default:
      return [source.weight];
  }
}

/**
 * Returns an encoder that keeps the checkpoint's bits. Throws ConvertError for affine codes of other than four bits.
 */
export function keepRows(source: MatrixSource, sums?: ErrorSums): RowEncoder {
  if (source.weight.rounded) return multiplyRows(source, 1, sums ?? new ErrorSums());
  switch (source.kind) {
    case "MXFP4":
      return { type: "MXFP4", block: BLOCK, encode: (rows) => interleaveMxfp4(source, rows) };
    case "affine": {
      if (source.bits !== 4) {
        refuseAffine(source.weight, `affine codes must have 4 bits (got ${source.bits})`);
      }
      return { type: "Q4_1", block: BLOCK, encode: (rows) => interleaveAffine(source, rows) };
    }
    default: {
      const { kind } = source;
      return { type: kind, block: layoutOf(kind).elements, encode: ([weight]) => weight };
    }
  }
}

/** Returns an encoder that widens floats to f32. */
export function widenRows(kind: FloatType): RowEncoder {
  return {
    type: "F32",
    block: 1,
    encode: ([weight]) => new Uint8Array(toFloats(kind, weight).buffer),
  };
}

/**
 * Returns an encoder that multiplies floats and keeps their width. BF16 becomes F16, which loses less. `sums` collects
 * the error.
 */
export function multiplyRows(source: MatrixSource, factor: number, sums: ErrorSums): RowEncoder {
  const { kind, weight: { file, name } } = source;
  if (!isFloat(kind)) {
    const detail = `it is multiplied by ${factor}, which its blocks cannot hold; `;
    refuse(file, `tensor ${quote(name)}`, [detail, { quantize: "q8_0" }, " takes it"]);
  }
  const type = kind === "F32" && !source.weight.rounded ? "F32" : "F16";
  const encode = ([weight]: RowParts) => {
    const values = toFloats(kind, weight);
    const out = type === "F32" ? new Float32Array(values.length) : new Float16Array(values.length);
    for (let i = 0; i < values.length; i++) {
      const value = values[i] * factor;
      out[i] = value;
      const error = Math.abs(value - out[i]);
      sums.squares += value * value;
      sums.errors += error * error;
      if (error > sums.max) sums.max = error;
    }
    if (!Number.isFinite(sums.max) || !Number.isFinite(sums.squares)) {
      refuse(file, `tensor ${quote(name)}`, `it has values that ${type} cannot hold multiplied by ${factor}`);
    }
    return new Uint8Array(out.buffer);
  };
  return { type, block: 1, encode, error: () => sums.error() };
}

/**
 * Returns an encoder that keeps every second row, starting with row `first` (0 or 1). The source has `pairs` row pairs.
 */
export function everySecond(
  encoder: RowEncoder,
  source: MatrixSource,
  pairs: number,
  first: 0 | 1,
): RowEncoder {
  const lengths = partsOf(source).map(({ byteLength }) => byteLength / pairs / 2);
  const half = (part: Uint8Array, length: number) => {
    const out = new Uint8Array(part.length / 2);
    for (let to = 0; to < out.length; to += length) {
      out.set(part.subarray(2 * to + first * length, 2 * to + (first + 1) * length), to);
    }
    return out;
  };
  return { ...encoder, encode: (rows) => encoder.encode(rows.map((part, i) => half(part, lengths[i]))) };
}

/** Running sums of squared values and squared errors. */
export class ErrorSums {
  squares = 0;
  errors = 0;
  max = 0;

  add({ squares, errors, max }: Pick<ErrorSums, "squares" | "errors" | "max">): void {
    this.squares += squares;
    this.errors += errors;
    this.max = Math.max(this.max, max);
  }

  error(): QuantizationError {
    const { squares, errors, max } = this;
    return { relativeRms: squares === 0 ? 0 : Math.sqrt(errors / squares), max };
  }
}

interface QuantizeOptions {
  readonly threads: QuantizerThreads;
  /** Collects the error, shared by matrices of one tensor. */
  readonly sums?: ErrorSums;
  /** Factor by which the source's values are multiplied. */
  readonly factor?: number;
  readonly weights?: RowWeights;
}

/** Returns an encoder that quantizes the source's values. With weights, rows must come in order. */
export function quantizeRows(
  source: MatrixSource,
  quantizer: Quantizer,
  { threads, sums = new ErrorSums(), factor = 1, weights }: QuantizeOptions,
): RowEncoder {
  const to = quantizer.type.toLowerCase() as QuantizeTo;
  let done = 0;
  const encode = async (rows: RowParts) => {
    const values = restoreRows(source, rows);
    if (factor !== 1) { for (let i = 0; i < values.length; i++) values[i] *= factor; }
    const first = done;
    done += values.length;
    const found = await threads.quantize({ to, values, weights: weights && { ...weights, first } });
    if (!found) {
      const detail = `it has values that ${quantizer.type} cannot hold (NaN, infinite or too large)`;
      refuse(source.weight.file, `tensor ${quote(source.weight.name)}`, detail);
    }
    sums.add(found);
    return found.bytes;
  };
  return { type: quantizer.type, block: quantizer.columns, encode, error: () => sums.error() };
}

/** Returns the rows' dequantized values. */
function restoreRows(source: MatrixSource, rows: RowParts): Float32Array<ArrayBuffer> {
  switch (source.kind) {
    case "MXFP4":
      return restoreMxfp4(source, rows);
    case "affine":
      return restoreAffine(source, rows);
    default:
      // To quantize blocks again, their floats are read instead.
      return toFloats(source.kind as FloatType, rows[0]);
  }
}

function interleaveMxfp4(source: MatrixSource & { kind: "MXFP4" }, [codes, exponents]: RowParts): Uint8Array {
  const out = new Uint8Array(17 * exponents.length);
  for (let block = 0; block < exponents.length; block++) {
    out[17 * block] = checkExponent(source, exponents[block]);
    interleave(codes, 16 * block, out, 17 * block + 1);
  }
  return out;
}

function restoreMxfp4(
  source: MatrixSource & { kind: "MXFP4" },
  [codes, exponents]: RowParts,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(2 * codes.length);
  for (let i = 0; i < values.length; i++) {
    const code = codes[i >> 1] >> 4 * (i & 1) & 15;
    const value = E2M1[code & 7] * 2 ** (checkExponent(source, exponents[i >> 5]) - 127);
    values[i] = code & 8 ? -value : value;
  }
  return values;
}

function checkExponent({ scales }: MatrixSource & { kind: "MXFP4" }, exponent: number): number {
  if (exponent === 255) {
    refuse(scales.file, `tensor ${quote(scales.name)}`, "must have scales below 255 (got 255, E8M0's NaN)");
  }
  return exponent;
}

function interleaveAffine(source: MatrixSource & { kind: "affine" }, rows: RowParts): Uint8Array {
  const { weight, scales, biases, group } = source;
  const d = exactHalves(weight, toFloats(scales.dtype as FloatType, rows[1]), "scale");
  const m = exactHalves(weight, toFloats(biases.dtype as FloatType, rows[2]), "bias");
  const blocks = rows[0].length / 16;
  const out = new Uint8Array(20 * blocks);
  for (let block = 0; block < blocks; block++) {
    const of = 2 * Math.floor(block * BLOCK / group);
    out.set(d.subarray(of, of + 2), 20 * block);
    out.set(m.subarray(of, of + 2), 20 * block + 2);
    interleave(rows[0], 16 * block, out, 20 * block + 4);
  }
  return out;
}

/** Returns the values as f16 bytes. Throws ConvertError when f16 cannot hold a value exactly. */
function exactHalves(weight: SafeTensor, values: Float32Array, what: string): Uint8Array {
  const halves = new Float16Array(values);
  for (let i = 0; i < values.length; i++) {
    if (halves[i] !== values[i] || !Number.isFinite(values[i])) {
      refuseAffine(weight, `it has the ${what} ${values[i]}, which f16 in Q4_1 cannot hold exactly`);
    }
  }
  return new Uint8Array(halves.buffer);
}

function restoreAffine(
  { bits, group, scales, biases }: MatrixSource & { kind: "affine" },
  [codes, scaleBytes, biasBytes]: RowParts,
): Float32Array<ArrayBuffer> {
  const scale = toFloats(scales.dtype as FloatType, scaleBytes);
  const bias = toFloats(biases.dtype as FloatType, biasBytes);
  const values = new Float32Array(codes.length * 8 / bits);
  for (let i = 0; i < values.length; i++) {
    const code = bits === 8 ? codes[i] : codes[i >> 1] >> 4 * (i & 1) & 15;
    const of = Math.floor(i / group);
    values[i] = scale[of] * code + bias[of];
  }
  return values;
}

function refuseAffine({ file, name }: SafeTensor, detail: string): never {
  refuse(file, `tensor ${quote(name)}`, [
    `${detail}; `,
    { quantize: "q8_0" },
    " takes it, with a small error",
  ]);
}
