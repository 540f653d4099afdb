import { GgufError, quote } from "../gguf/errors.ts";
import { readTensor } from "../gguf/float_tensor.ts";
import { requireTensor } from "../gguf/hparams/hparams.ts";
import type { Dequantize, GgufFile, TensorInfo } from "../gguf/types.ts";

/** One of several matrices stacked in a tensor: its rows start at `first`, of `of` rows in total. */
export interface RowsOf {
  readonly name: string;
  readonly first: number;
  readonly of: number;
  /** The tensor has a third dimension, and all matrices have the same number of rows. */
  readonly stacked?: boolean;
}

/** Suffix in the name of a tensor's part. */
const PART = /\[\d+:\d+\]$/;

/** Returns the file's name for a plan's tensor: the whole tensor's name if the plan's tensor is a part of it. */
export function wholeName(name: string): string {
  return name.replace(PART, "");
}

/**
 * Returns consecutive rows, or values, of a tensor as a tensor of its own. The rows are contiguous in the file.
 */
export function rowsOf(whole: TensorInfo, { first, of }: RowsOf, shape: readonly number[]): TensorInfo {
  const rows = shape.at(-1)!;
  const rowBytes = whole.byteLength / of;
  return {
    ...whole,
    name: `${whole.name}[${first}:${first + rows}]`,
    shape,
    offset: whole.offset + first * rowBytes,
    byteLength: rows * rowBytes,
  };
}

/** Some rows of each head in a matrix that stores the heads one after another. */
export interface HeadRowsOf {
  readonly name: string;
  /** Index of the first row within a head. Each head has `of` rows. */
  readonly first: number;
  readonly of: number;
  /**
   * Whether each head is transposed. It is then stored as F16, which rounds quantized values by at most 2^-11 of their
   * size; as F32 if the file has F32 or BF16.
   */
  readonly transposed?: boolean;
}

/**
 * Returns a tensor of several matrices: a whole tensor of the file, or some rows of each head of a tensor, extracted at
 * load. Throws GgufError if the file's tensor has another shape.
 */
export function matricesOf(
  file: GgufFile,
  part: string | HeadRowsOf,
  shape: readonly [columns: number, rows: number, heads: number],
): TensorInfo {
  if (typeof part === "string") return requireTensor(file, part, shape);
  const { name, first, of, transposed = false } = part;
  const [columns, rows, heads] = shape;
  const [width, count] = transposed ? [rows, columns] : [columns, rows];
  const whole = requireTensor(file, name, [width, of * heads]);
  const info = { ...whole, name: `${name}[${first}:${first + count}]`, shape };
  const rowsOfHeads = Array.from(
    { length: heads },
    (_, head) => rowsOf(whole, { name, first: head * of + first, of: of * heads }, [width, count]),
  );
  if (!transposed) {
    const byteLength = whole.byteLength / of * count;
    return { ...info, byteLength, made: () => joinHeads(file, rowsOfHeads, byteLength) };
  }
  const type = whole.type === "F32" || whole.type === "BF16" ? "F32" : "F16";
  const byteLength = columns * rows * heads * (type === "F32" ? 4 : 2);
  const made = async (dequantize: Dequantize) => {
    const turned = new (type === "F32" ? Float32Array : Float16Array)(columns * rows * heads);
    let at = 0;
    for await (const bytes of readInTurns(file, rowsOfHeads)) {
      const head = transpose(await dequantize(whole.type, bytes), width, LIMITS[type]);
      if (!head) {
        throw new GgufError("GGUF_DATA", `must have only finite numbers of ${type}'s range`, {
          field: `tensor ${quote(name)} of ${quote(file.path)}`,
        });
      }
      turned.set(head, at);
      at += head.length;
    }
    return new Uint8Array(turned.buffer);
  };
  return { ...info, type, byteLength, made };
}

/** The smallest absolute values that a type cannot hold. */
const LIMITS = { F16: 65_520, F32: Infinity };

/** Milliseconds of work after which the event loop serves others. */
const SLICE_MS = 2;

/** Reads tensors. The event loop runs between two tensors after each `SLICE_MS` of work. */
async function* readInTurns(file: GgufFile, tensors: readonly TensorInfo[]): AsyncGenerator<Uint8Array> {
  let begun = performance.now();
  for (const tensor of tensors) {
    if (performance.now() - begun >= SLICE_MS) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      begun = performance.now();
    }
    yield new Uint8Array(await readTensor(file, tensor));
  }
}

async function joinHeads(
  file: GgufFile,
  heads: readonly TensorInfo[],
  byteLength: number,
): Promise<Uint8Array> {
  const joined = new Uint8Array(byteLength);
  let at = 0;
  for await (const bytes of readInTurns(file, heads)) {
    joined.set(bytes, at);
    at += bytes.length;
  }
  return joined;
}

/** Returns the transpose of a matrix; undefined if it has a value whose absolute value is not below the limit. */
function transpose(values: Float32Array, columns: number, limit: number): Float32Array | undefined {
  const rows = values.length / columns;
  const turned = new Float32Array(values.length);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let to = row; to < turned.length; to += rows) {
      const value = values[at++];
      if (!(Math.abs(value) < limit)) return undefined;
      turned[to] = value;
    }
  }
  return turned;
}
