import { GgufError, quote } from "../gguf/errors.ts";
import { readTensor } from "../gguf/float_tensor.ts";
import { requireTensor } from "../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import { finish, type Paced, withPauses } from "../pacing/pauses.ts";

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
  /** Whether each head is transposed. Its values are then stored as F16, or as F32 if F16 may round them. */
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
  const rowBytes = whole.byteLength / (of * heads);
  const info = { ...whole, name: `${name}[${first}:${first + count}]`, shape };
  const read = async () => {
    const bytes = new Uint8Array(await readTensor(file, whole));
    const parts = new Uint8Array(heads * count * rowBytes);
    for (let head = 0; head < heads; head++) {
      const from = (head * of + first) * rowBytes;
      parts.set(bytes.subarray(from, from + count * rowBytes), head * count * rowBytes);
    }
    return parts;
  };
  if (!transposed) return { ...info, byteLength: heads * count * rowBytes, made: read };
  const type = whole.type === "F32" || whole.type === "BF16" ? "F32" : "F16";
  return {
    ...info,
    type,
    byteLength: columns * rows * heads * (type === "F32" ? 4 : 2),
    made: async (dequantize) => {
      const values = await dequantize(whole.type, await read());
      const turned = new (type === "F32" ? Float32Array : Float16Array)(values.length);
      const finite = await withPauses(() => finish(transposeHeads(values, turned, rows, columns * rows)));
      if (finite) return new Uint8Array(turned.buffer);
      throw new GgufError("GGUF_DATA", `must have only finite numbers of ${type}'s range`, {
        field: `tensor ${quote(name)} of ${quote(file.path)}`,
      });
    },
  };
}

/** Transposes each head: `size` values in rows of `length` values. Returns whether all results are finite. */
function* transposeHeads(
  values: Float32Array,
  out: Float32Array | Float16Array,
  length: number,
  size: number,
): Paced<boolean> {
  let finite = true;
  for (let head = 0; head < values.length; head += size) {
    yield;
    let to = head;
    for (let column = 0; column < length; column++) {
      for (let row = column; row < size; row += length) out[to++] = values[head + row];
    }
    finite &&= out.subarray(head, to).every(Number.isFinite);
  }
  return finite;
}
