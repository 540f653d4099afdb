import { quote } from "../../engine/gguf/errors.ts";
import { byteLengthOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { refuse } from "../errors.ts";
import { type MatrixSource } from "../checkpoint/tensors.ts";
import type { Runs } from "../order.ts";
import { partsOf, type QuantizationError, type RowEncoder } from "../quantize/row_encoders.ts";

/** A tensor of the file to be written. */
export interface OutputTensor {
  readonly name: string;
  readonly type: TensorType;
  /** Shape in ggml order: the contiguous dimension first. */
  readonly shape: readonly number[];
  readonly byteLength: number;
  /** The tensor's format in the checkpoint: `BF16`, `MXFP4`, `affine 4 bits`. */
  readonly source: string;
  /** Returns the tensor's bytes in order, in chunks of at most a few MiB. Call it only once. */
  chunks(): Iterable<Uint8Array | Promise<Uint8Array>>;
  /** Returns the quantization error, after all chunks; undefined if the format is lossless. */
  error?(): QuantizationError | undefined;
}

/** Returns the format of a matrix in the checkpoint, for the report. */
function formatOf(source: MatrixSource): string {
  return source.weight.format ?? (source.kind === "affine" ? `affine ${source.bits} bits` : source.kind);
}

/** Number of a matrix's bytes to read at a time. It is also the size of one thread's task. */
const CHUNK_BYTES = 1024 * 1024;

/** Returns a float vector that is held in memory. */
export function vectorTensor(
  name: string,
  values: Float32Array,
  source: string,
  shape: readonly number[] = [values.length],
): OutputTensor {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return { name, type: "F32", shape, byteLength: bytes.length, source, chunks: () => [bytes] };
}

/** Returns matrices of the same shape and type, one after the other, as one tensor with an additional dimension. */
export function stackTensors(parts: readonly OutputTensor[]): OutputTensor {
  return joinTensors(parts, [...parts[0].shape, parts.length]);
}

/** Returns matrices of one type, one after the other, as one tensor of that shape. */
export function joinTensors(parts: readonly OutputTensor[], shape: readonly number[]): OutputTensor {
  return {
    ...parts[0],
    shape,
    byteLength: parts.reduce((sum, { byteLength }) => sum + byteLength, 0),
    *chunks() {
      for (const part of parts) yield* part.chunks();
    },
    error: () => parts.at(-1)!.error?.(),
  };
}

export interface MatrixOptions {
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  readonly source: MatrixSource;
  /** Number of rows in the source; by default as in the result. */
  readonly sourceRows?: number;
  readonly encoder: RowEncoder;
  /** Order of the source's rows in the result; by default unchanged. */
  readonly rowOrder?: Runs;
  readonly columnOrder?: Runs;
}

/**
 * Returns a matrix that is read, encoded and returned some rows at a time. Throws ConvertError if the columns are not
 * whole blocks of the type, or if a reordering of columns would split a block.
 */
export function matrixTensor(checkpoint: Checkpoint, options: MatrixOptions): OutputTensor {
  const { name, rows, columns, source, sourceRows = rows, encoder, rowOrder, columnOrder } = options;
  const { type, block } = encoder;
  const cut = columnOrder?.find(([start, count]) => start % block !== 0 || count % block !== 0);
  if (cut) refuseColumns(source, encoder, `heads of ${cut[1]} columns, which change places`);
  if (columns % block !== 0) refuseColumns(source, encoder, `${columns} columns`);
  const rowBytes = byteLengthOf(type, columns);
  const unit = byteLengthOf(type, block);
  const byteOrder = columnOrder?.map(([start, count]) =>
    [start / block * unit, count / block * unit] as const
  );
  return {
    name,
    type,
    shape: [columns, rows],
    byteLength: rows * rowBytes,
    source: formatOf(source),
    *chunks() {
      for (const parts of readRows(checkpoint, source, sourceRows, rowOrder ?? [[0, rows]])) {
        const encoded = encoder.encode(parts);
        yield byteOrder ? reorder(encoded, rowBytes, byteOrder) : encoded;
      }
    },
    error: () => encoder.error?.(),
  };
}

function refuseColumns({ weight }: MatrixSource, { type, block }: RowEncoder, found: string): never {
  const detail = `must have a multiple of ${block} columns, the block of ${type} (got ${found})`;
  refuse(weight.file, `tensor ${quote(weight.name)}`, detail);
}

/**
 * Returns matrices that a float source holds transposed, one after the other: [count x each, of]. The result has `rows`
 * rows from `start` on, and the first `columns` columns. Throws ConvertError as matrixTensor.
 */
export function turnedTensor(
  checkpoint: Checkpoint,
  { name, rows, columns, source, encoder, count, start, of, each }: MatrixOptions & {
    readonly count: number;
    readonly start: number;
    readonly of: number;
    readonly each: number;
  },
): OutputTensor {
  const { type, block } = encoder;
  if (columns % block !== 0) refuseColumns(source, encoder, `${columns} columns`);
  const size = source.weight.byteLength / count;
  return {
    name,
    type,
    shape: [columns, rows, count],
    byteLength: count * rows * byteLengthOf(type, columns),
    source: formatOf(source),
    *chunks() {
      for (let i = 0; i < count; i++) {
        const bytes = new Uint8Array(size * columns / each);
        checkpoint.read(source.weight, i * size, bytes);
        yield encoder.encode([turned(bytes, columns, of, start, rows)]);
      }
    },
    error: () => encoder.error?.(),
  };
}

/** Transposes `count` columns of a matrix [rows, columns]. Returns the bytes of [count, rows]. */
function turned(
  bytes: Uint8Array<ArrayBuffer>,
  rows: number,
  columns: number,
  start: number,
  count: number,
): Uint8Array {
  const size = bytes.length / rows / columns;
  const View = size === 2 ? Uint16Array : Uint32Array;
  const [from, to] = [new View(bytes.buffer), new View(rows * count)];
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < count; i++) to[i * rows + row] = from[row * columns + start + i];
  }
  return new Uint8Array(to.buffer);
}

/** Yields the source's rows in the given order, several at a time. */
function* readRows(
  checkpoint: Checkpoint,
  source: MatrixSource,
  rows: number,
  order: Runs,
): Generator<Uint8Array[]> {
  const parts = partsOf(source);
  const lengths = parts.map(({ byteLength }) => byteLength / rows);
  const most = Math.max(1, Math.floor(CHUNK_BYTES / lengths.reduce((a, b) => a + b)));
  let buffers: Uint8Array[] = [];
  let filled = 0;
  let left = order.reduce((sum, [, count]) => sum + count, 0);
  for (const [start, count] of order) {
    for (let done = 0; done < count;) {
      if (filled === 0) buffers = lengths.map((length) => new Uint8Array(Math.min(most, left) * length));
      const n = Math.min(count - done, Math.min(most, left) - filled);
      parts.forEach((part, i) => {
        const into = buffers[i].subarray(filled * lengths[i], (filled + n) * lengths[i]);
        checkpoint.read(part, (start + done) * lengths[i], into);
      });
      done += n;
      filled += n;
      if (filled < Math.min(most, left)) continue;
      yield buffers;
      left -= filled;
      filled = 0;
    }
  }
}

/** Returns the rows, with the byte runs of each row in the given order. */
async function reorder(
  encoded: Uint8Array | Promise<Uint8Array>,
  rowBytes: number,
  runs: Runs,
): Promise<Uint8Array> {
  const rows = await encoded;
  const out = new Uint8Array(rows.length);
  for (let row = 0, to = 0; row < rows.length; row += rowBytes) {
    for (const [start, count] of runs) {
      out.set(rows.subarray(row + start, row + start + count), to);
      to += count;
    }
  }
  return out;
}
