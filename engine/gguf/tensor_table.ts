import type { Cursor } from "./cursor.ts";
import { GgufError, quote } from "./errors.ts";
import { INTEGERS, layoutOfId, nameOfId, SUPPORTED_TYPES, type TensorTypeLayout } from "./tensor_types.ts";
import type { IntegerTensor, TensorInfo } from "./types.ts";

/** Maximum bytes of a tensor name, by the GGUF specification. */
const MAX_NAME_BYTES = 64;
const MAX_RANK = 4;

/** An entry of the tensor table, read before the start of the data is known. */
interface Entry {
  readonly name: string;
  readonly layout: TensorTypeLayout | typeof INTEGERS;
  readonly shape: number[];
  readonly byteLength: number;
  /** Offset of the tensor in bytes from the start of the data. */
  readonly offset: number;
  /** File offset of the entry's offset field. */
  readonly offsetByte: number;
}

/** The file's tensors by name. */
export interface TensorTable {
  readonly tensors: Map<string, TensorInfo>;
  readonly integers: Map<string, IntegerTensor>;
}

/** Returns the tensors of the file. Checks that each is aligned, inside the file and not overlapping. */
export function readTensorTable(
  cursor: Cursor,
  count: number,
  alignment: number,
  fileSize: number,
  path: string,
): TensorTable {
  const entries = new Map<string, Entry>();
  for (let i = 0; i < count; i++) {
    const entry = readEntry(cursor, i, alignment, entries);
    entries.set(entry.name, entry);
  }
  const dataStart = Math.ceil(cursor.position / alignment) * alignment;
  checkPlaces([...entries.values()], dataStart, alignment, fileSize);
  const tensors = new Map<string, TensorInfo>();
  const integers = new Map<string, IntegerTensor>();
  for (const { name, layout, shape, byteLength, offset: from } of entries.values()) {
    const offset = dataStart + from;
    if (layout.name === INTEGERS.name) {
      integers.set(name, { path, offset, length: byteLength / layout.bytes });
    } else tensors.set(name, { name, type: layout.name, shape, path, offset, byteLength });
  }
  return { tensors, integers };
}

function readEntry(
  cursor: Cursor,
  index: number,
  alignment: number,
  known: ReadonlyMap<string, Entry>,
): Entry {
  const byte = cursor.position;
  const name = cursor.string(`name of tensor ${index}`, MAX_NAME_BYTES);
  if (name === "") {
    const place = { byte, field: `name of tensor ${index}` };
    throw new GgufError("GGUF_STRING", "must not be empty", place);
  }
  const field = `tensor ${quote(name)}`;
  if (known.has(name)) {
    throw new GgufError("GGUF_DUPLICATE", "the tensor appears twice", { byte, field });
  }
  const shapeByte = cursor.position;
  const shape = readShape(cursor, field);
  const layout = readLayout(cursor, field);
  const byteLength = byteLengthOfShape(shape, layout, shapeByte + 4, field);
  const offsetByte = cursor.position;
  const offset = cursor.length(field);
  if (!Number.isSafeInteger(offset) || offset % alignment !== 0) {
    const detail =
      `the offset must be a multiple of ${alignment} (the alignment) below 2^53 (got ${cursor.exactLength})`;
    throw new GgufError("GGUF_OFFSET", detail, { byte: offsetByte, field });
  }
  return { name, layout, shape, byteLength, offset, offsetByte };
}

function readShape(cursor: Cursor, field: string): number[] {
  const rankByte = cursor.position;
  const rank = cursor.u32(field);
  if (rank < 1 || rank > MAX_RANK) {
    const detail = `must have 1 to ${MAX_RANK} dimensions (got ${rank})`;
    throw new GgufError("GGUF_SHAPE", detail, { byte: rankByte, field });
  }
  const shape: number[] = [];
  let elements = 1;
  for (let i = 0; i < rank; i++) {
    const byte = cursor.position;
    const dimension = cursor.u64(field);
    if (dimension < 1n || dimension > BigInt(Math.floor(Number.MAX_SAFE_INTEGER / elements))) {
      const detail =
        `dimension ${i} must be at least 1, with fewer than 2^53 elements in all (got ${dimension})`;
      throw new GgufError("GGUF_SHAPE", detail, { byte, field });
    }
    shape.push(Number(dimension));
    elements *= shape[i];
  }
  return shape;
}

function readLayout(cursor: Cursor, field: string): Entry["layout"] {
  const byte = cursor.position;
  const id = cursor.u32(field);
  const layout = id === INTEGERS.id ? INTEGERS : layoutOfId(id);
  if (!layout) {
    const detail = `type ${id} (${nameOfId(id)}) is not supported; supported are ${SUPPORTED_TYPES}`;
    throw new GgufError("GGUF_TENSOR_TYPE", detail, { byte, field });
  }
  return layout;
}

function byteLengthOfShape(
  shape: readonly number[],
  layout: Entry["layout"],
  byte: number,
  field: string,
): number {
  if (shape[0] % layout.elements !== 0) {
    const detail = `dimension 0 must be a multiple of ${layout.elements}, the block of ${layout.name} (got ${
      shape[0]
    })`;
    throw new GgufError("GGUF_SHAPE", detail, { byte, field });
  }
  const byteLength = shape.reduce((a, b) => a * b) / layout.elements * layout.bytes;
  if (!Number.isSafeInteger(byteLength)) {
    const detail = `must have fewer than 2^53 bytes (got ${shape.join(" x ")} elements of ${layout.name})`;
    throw new GgufError("GGUF_SHAPE", detail, { byte, field });
  }
  return byteLength;
}

/**
 * Checks in order of offset that tensors do not overlap and lie inside the file. A tensor that begins inside the file
 * but ends outside means a truncated file; an offset outside is itself wrong.
 */
function checkPlaces(entries: Entry[], dataStart: number, alignment: number, fileSize: number): void {
  entries.sort((a, b) => a.offset - b.offset);
  const room = Math.ceil(fileSize / alignment) * alignment;
  let end = 0; // of the previous tensor, from the start of the data
  let before = entries[0];
  for (const entry of entries) {
    const { name, offset, byteLength, offsetByte } = entry;
    const place = { byte: offsetByte, field: `tensor ${quote(name)}` };
    if (offset < end) {
      const detail = `the offset must be at least ${end}, the end of ${quote(before.name)} (got ${offset})`;
      throw new GgufError("GGUF_OFFSET", detail + hintFor(before.layout), place);
    }
    const last = dataStart + offset + byteLength;
    if (dataStart + offset > room) {
      const detail = `its data begin at byte ${dataStart + offset}, but the file has ${fileSize} bytes`;
      throw new GgufError("GGUF_OFFSET", detail, place);
    }
    if (last > fileSize) {
      const detail = `its data end at byte ${last}, but the file has ${fileSize} bytes (is it cut short?)`;
      throw new GgufError("GGUF_TRUNCATED", detail, place);
    }
    end = offset + byteLength;
    before = entry;
  }
}

/** PrismML published files whose Q2_0 has other blocks than ggml's, under the same type id. */
function hintFor({ name }: Entry["layout"]): string {
  return name === "Q2_0"
    ? "; this is not ggml's Q2_0 if the file is PrismML's and its groups have 128 values"
    : "";
}
