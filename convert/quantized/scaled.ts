import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { ExactBlocks, FloatType, SafeTensor } from "../checkpoint/tensors.ts";
import { putHalf } from "../quantize/quantizers.ts";
import { computedBlocks, computedFloats } from "./computed.ts";
import {
  checkScales,
  checkScaleType,
  CODES,
  fitHalf,
  readNumbers,
  refuseTensor,
  wrongShape,
} from "./numbers.ts";

/** Rows and columns that share a scale. */
export type Block = readonly [rows: number, columns: number];

/** A matrix of 8-bit codes (FP8 or int8) with scales; a value is code x scale. */
export interface Scaled {
  readonly weight: SafeTensor; // [rows, columns] or [matrices, rows, columns]
  readonly scales: SafeTensor;
}

/** Position of an element's scale. The scales of each matrix form a grid. */
interface Grid {
  /** Rows of a matrix. The scales of the next matrix follow. */
  readonly rows: number;
  readonly gridRows: number;
  readonly gridColumns: number;
  readonly block: Block;
}

/** Number of scales to check at a time. */
const CHUNK = 1 << 18;
const Q8_0 = { columns: 32, bytes: 34 };

/**
 * Returns the grid of a tensor's scales. One scale may cover the whole tensor, one of its matrices, a row, or a block
 * of a size in `blocks`. Throws ConvertError for other shapes.
 */
function gridOf({ weight, scales }: Scaled, blocks: readonly Block[]): Grid {
  const { shape } = weight;
  if (shape.length < 2 || shape.length > 3 || shape.includes(0)) {
    wrongShape(weight, "rows x columns or matrices x rows x columns, each at least 1");
  }
  const [rows, columns] = shape.slice(-2);
  const lead = shape.slice(0, -2);
  const count = lead[0] ?? 1;
  const found = inWords(scales.shape);
  const grids = [
    { rows: rows * count, block: [rows * count, columns] },
    { rows, block: [rows, columns] },
    ...blocks.map((block) => ({ rows, block })),
    { rows, block: [1, columns] },
  ].map(({ rows, block: [height, width] }): Grid => {
    const block: Block = [Math.min(height, rows), Math.min(width, columns)];
    return { rows, gridRows: Math.ceil(rows / block[0]), gridColumns: Math.ceil(columns / block[1]), block };
  });
  const sizes = grids.map(({ rows: each, gridRows, gridColumns }) =>
    inWords([...lead.length > 0 ? [rows * count / each] : [], gridRows, gridColumns])
  );
  const grid = grids[sizes.indexOf(found)];
  const allowed = [...new Set(sizes)].join(", or ");
  return grid ?? wrongShape(scales, `${allowed}, for the weight's shape ${shape.join(" x ")}`);
}

/** Returns a shape in words, without sizes of 1 at its end. */
function inWords(shape: readonly number[]): string {
  return shape.slice(0, 1 + shape.findLastIndex((size) => size !== 1)).join(" x ") || "1";
}

/**
 * Returns whether `check` holds for all scales, given in chunks. Throws ConvertError if one is negative or not finite.
 */
function everyScale(
  checkpoint: Checkpoint,
  scales: SafeTensor,
  check: (some: Float32Array) => boolean,
): boolean {
  const count = scales.shape.reduce((product, size) => product * size, 1);
  let all = true;
  for (let at = 0; at < count; at += CHUNK) {
    const some = readNumbers(checkpoint, scales, at, Math.min(CHUNK, count - at));
    checkScales(scales, some);
    all &&= check(some);
  }
  return all;
}

/** Returns whether BF16 holds the products of all scales with FP8 codes, which have up to four significant bits. */
function fitBf16(scales: Float32Array): boolean {
  const words = new Uint32Array(scales.buffer, scales.byteOffset, scales.length);
  // Within this range, products with the codes stay within BF16.
  return words.every((word, i) => (word & 0xfffff) === 0 && (scales[i] === 0 || inRange(scales[i])));
}
const inRange = (scale: number) => scale > 2 ** -100 && scale < 2 ** 100;

/**
 * Returns float tensors with the values of FP8 and int8 matrices. int8 becomes F32. FP8 becomes BF16 if BF16 holds the
 * values of all FP8 matrices, else F32. F32 rounds only products with scales of more than 20 significant bits. FP8
 * matrices share a type because the experts of a layer become one tensor.
 */
export function scaledFloats(
  checkpoint: Checkpoint,
  all: readonly Scaled[],
  blocks: readonly Block[],
): SafeTensor[] {
  for (const { scales } of all) checkScaleType(scales);
  const narrow = all.map(({ weight, scales }) =>
    everyScale(checkpoint, scales, weight.dtype === "I8" ? () => false : fitBf16)
  );
  const floats = all.filter(({ weight }) => weight.dtype !== "I8");
  const dtype = floats.length > 0 && all.every(({ weight }, i) => weight.dtype === "I8" || narrow[i])
    ? "BF16"
    : "F32";
  return all.map((one) =>
    dequantized(checkpoint, one, gridOf(one, blocks), one.weight.dtype === "I8" ? "F32" : dtype)
  );
}

function dequantized(checkpoint: Checkpoint, scaled: Scaled, grid: Grid, dtype: FloatType): SafeTensor {
  const { weight, scales } = scaled;
  const columns = weight.shape.at(-1)!;
  const values = CODES[weight.dtype]!;
  const format = weight.dtype === "I8" ? "int8" : weight.dtype.replace("F8", "FP8");
  const { name, file, shape } = weight;
  const about = { name, file, shape, format };
  const floats = computedFloats(checkpoint, about, dtype, (start, out) => {
    const rows = out.length / columns;
    const codes = new Uint8Array(out.length);
    checkpoint.read(weight, start * columns, codes);
    const { of, scale } = scalesOf(checkpoint, scales, grid, start, rows);
    const width = grid.block[1];
    for (let row = 0, at = 0; row < rows; row++) {
      let index = of(row);
      for (let column = 0; column < columns; column += width) {
        const factor = scale[index++];
        for (const end = at + Math.min(width, columns - column); at < end; at++) {
          out[at] = values[codes[at]] * factor;
        }
      }
    }
    if (!out.every(Number.isFinite)) refuseTensor(weight, "its products with the scales are not finite");
  });
  return { ...floats, blocks: asQ8(checkpoint, scaled, grid) };
}

/** Returns the scales of `rows` rows from `start` on, and a function `of` for the index of a row's first scale. */
function scalesOf(checkpoint: Checkpoint, scales: SafeTensor, grid: Grid, start: number, rows: number) {
  const { gridRows, gridColumns, block: [height] } = grid;
  const line = (row: number) => Math.floor(row / grid.rows) * gridRows + Math.floor(row % grid.rows / height);
  const first = line(start);
  const count = line(start + rows - 1) - first + 1;
  const scale = readNumbers(checkpoint, scales, first * gridColumns, count * gridColumns);
  return { scale, of: (row: number) => (line(start + row) - first) * gridColumns };
}

/** Returns int8 codes as Q8_0 blocks, if f16 holds the scales and no block has two scales. */
function asQ8(checkpoint: Checkpoint, { weight, scales }: Scaled, grid: Grid): ExactBlocks | undefined {
  const [rows, columns] = weight.shape;
  const width = grid.block[1];
  const divides = columns % Q8_0.columns === 0 && (width === columns || width % Q8_0.columns === 0);
  if (weight.dtype !== "I8" || weight.shape.length !== 2 || !divides) return undefined;
  if (!everyScale(checkpoint, scales, fitHalf)) return undefined;
  const about = { name: weight.name, file: weight.file, shape: [rows, columns], format: "int8" };
  const blocks = computedBlocks(checkpoint, about, "Q8_0", (start, out) => {
    const count = out.length / Q8_0.bytes;
    const codes = new Uint8Array(count * Q8_0.columns);
    checkpoint.read(weight, start * columns, codes);
    const { of, scale } = scalesOf(checkpoint, scales, grid, start, codes.length / columns);
    for (let block = 0; block < count; block++) {
      const at = block * Q8_0.columns;
      const index = of(Math.floor(at / columns)) + Math.floor(at % columns / width);
      putHalf(scale[index], out, block * Q8_0.bytes);
      out.set(codes.subarray(at, at + Q8_0.columns), block * Q8_0.bytes + 2);
    }
  });
  return { kind: "Q8_0", weight: blocks };
}
