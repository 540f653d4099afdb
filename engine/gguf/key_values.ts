import type { Cursor } from "./cursor.ts";
import { GgufError, quote } from "./errors.ts";
import type { MetadataArray, MetadataValue } from "./types.ts";

/** GGUF's value types, by id. */
export const VALUE_TYPES = [
  "UINT8",
  "INT8",
  "UINT16",
  "INT16",
  "UINT32",
  "INT32",
  "FLOAT32",
  "BOOL",
  "STRING",
  "ARRAY",
  "UINT64",
  "INT64",
  "FLOAT64",
] as const;
export type ValueType = typeof VALUE_TYPES[number];

/** Minimum bytes of a value by type: a string has a length, an array an element type and a count. */
const MIN_BYTES: Readonly<Record<ValueType, number>> = {
  UINT8: 1,
  INT8: 1,
  UINT16: 2,
  INT16: 2,
  UINT32: 4,
  INT32: 4,
  FLOAT32: 4,
  BOOL: 1,
  STRING: 8,
  ARRAY: 12,
  UINT64: 8,
  INT64: 8,
  FLOAT64: 8,
};

const TYPED_ARRAYS = {
  UINT8: Uint8Array,
  INT8: Int8Array,
  UINT16: Uint16Array,
  INT16: Int16Array,
  UINT32: Uint32Array,
  INT32: Int32Array,
  FLOAT32: Float32Array,
  FLOAT64: Float64Array,
} as const;

/** Maximum bytes of a key, by the GGUF specification. */
const MAX_KEY_BYTES = 65_535;
/**
 * Maximum array elements of a file that become separate JavaScript values. The largest published files have about
 * 800,000.
 */
const MAX_BOXED_ELEMENTS = 2_097_152;
const DEFAULT_ALIGNMENT = 32;
const MIN_ALIGNMENT = 8;
const MAX_ALIGNMENT = 1_048_576;
const ALIGNMENT_KEY = "general.alignment";

export interface KeyValues {
  readonly entries: Map<string, MetadataValue>;
  /** File offset of each metadata key's value. */
  readonly positions: Map<string, number>;
  /** Alignment of the tensor data in bytes. */
  readonly alignment: number;
}

/** Number of array elements that the rest of the file may still have. */
interface Room {
  elements: number;
}

export function readKeyValues(cursor: Cursor, count: number): KeyValues {
  const entries = new Map<string, MetadataValue>();
  const positions = new Map<string, number>();
  const room: Room = { elements: MAX_BOXED_ELEMENTS };
  let alignment = DEFAULT_ALIGNMENT;
  for (let i = 0; i < count; i++) {
    const byte = cursor.position;
    const key = cursor.string(`key ${i}`, MAX_KEY_BYTES);
    const field = `key ${quote(key)}`;
    if (key === "") {
      throw new GgufError("GGUF_STRING", "must not be empty", { byte, field: `key ${i}` });
    }
    if (entries.has(key)) {
      throw new GgufError("GGUF_DUPLICATE", "the key appears twice", { byte, field });
    }
    const type = readType(cursor, field);
    const position = cursor.position;
    const value = readValue(cursor, type, field, room);
    if (key === ALIGNMENT_KEY) alignment = checkAlignment(value, type, position, field);
    entries.set(key, value);
    positions.set(key, position);
  }
  return { entries, positions, alignment };
}

function checkAlignment(value: MetadataValue, type: ValueType, byte: number, field: string): number {
  const valid = type === "UINT32" && typeof value === "number" && value >= MIN_ALIGNMENT &&
    value <= MAX_ALIGNMENT && (value & (value - 1)) === 0;
  if (!valid) {
    const found = type === "UINT32" ? String(value) : `a value of type ${type}`;
    const allowed = `a UINT32 that is a power of two from ${MIN_ALIGNMENT} to ${MAX_ALIGNMENT}`;
    throw new GgufError("GGUF_ALIGN", `must be ${allowed} (got ${found})`, { byte, field });
  }
  return value;
}

function readType(cursor: Cursor, field: string): ValueType {
  const byte = cursor.position;
  const id = cursor.u32(field);
  const type = VALUE_TYPES[id];
  if (type === undefined) {
    throw new GgufError("GGUF_KV_TYPE", `the value type must be 0 to ${VALUE_TYPES.length - 1} (got ${id})`, {
      byte,
      field,
    });
  }
  return type;
}

function readValue(cursor: Cursor, type: ValueType, field: string, room: Room): MetadataValue {
  switch (type) {
    case "STRING":
      return cursor.string(field);
    case "ARRAY":
      return readArray(cursor, field, room);
    case "BOOL":
      return readBoolean(cursor, field);
    default:
      return readNumber(cursor, type, field);
  }
}

function readBoolean(cursor: Cursor, field: string): boolean {
  const byte = cursor.position;
  const value = cursor.u8(field);
  if (value > 1) {
    throw new GgufError("GGUF_KV_TYPE", `a BOOL must be 0 or 1 (got ${value})`, { byte, field });
  }
  return value === 1;
}

function readNumber(
  cursor: Cursor,
  type: Exclude<ValueType, "STRING" | "ARRAY" | "BOOL">,
  field: string,
): number | bigint {
  const { view, at } = cursor.scalar(MIN_BYTES[type], field);
  switch (type) {
    case "UINT8":
      return view.getUint8(at);
    case "INT8":
      return view.getInt8(at);
    case "UINT16":
      return view.getUint16(at, true);
    case "INT16":
      return view.getInt16(at, true);
    case "UINT32":
      return view.getUint32(at, true);
    case "INT32":
      return view.getInt32(at, true);
    case "FLOAT32":
      return view.getFloat32(at, true);
    case "FLOAT64":
      return view.getFloat64(at, true);
    case "UINT64":
      return narrow(view.getBigUint64(at, true));
    case "INT64":
      return narrow(view.getBigInt64(at, true));
  }
}

function narrow(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** Reads an array of numbers, booleans or strings. Like llama.cpp, refuses arrays of arrays. */
function readArray(cursor: Cursor, field: string, room: Room): MetadataArray {
  const typeByte = cursor.position;
  const type = readType(cursor, field);
  if (type === "ARRAY") {
    const detail = "an array must hold numbers, booleans or strings (got arrays)";
    throw new GgufError("GGUF_ARRAY", detail, { byte: typeByte, field });
  }
  const count = readArrayCount(cursor, type, field, room);
  switch (type) {
    case "STRING":
      return cursor.strings(count, field);
    case "BOOL":
      return Array.from({ length: count }, () => readBoolean(cursor, field));
    case "UINT64":
    case "INT64":
      return readBigints(cursor, type, count, field);
    default: {
      // Typed arrays use the machine's byte order, which is little-endian on all platforms of Deno.
      const Typed = TYPED_ARRAYS[type];
      return new Typed(cursor.bytes(count * Typed.BYTES_PER_ELEMENT, field).buffer);
    }
  }
}

/**
 * Returns the element count of an array, after checking that its elements fit in the remaining bytes. Allocates
 * nothing.
 */
function readArrayCount(cursor: Cursor, type: ValueType, field: string, room: Room): number {
  const byte = cursor.position;
  const count = cursor.length(field);
  const fits = Math.floor(cursor.remaining / MIN_BYTES[type]);
  if (count > fits) {
    const found = `${cursor.exactLength} elements of ${type}`;
    const detail = `must have at most ${fits} elements (got ${found}): ${cursor.endInWords}`;
    throw new GgufError("GGUF_ARRAY", detail, { byte, field });
  }
  if (type in TYPED_ARRAYS) return count;
  if (count > room.elements) {
    const detail = `${count} elements of ${type} are more than the ${room.elements} left of the ` +
      `${MAX_BOXED_ELEMENTS} that all arrays of a file may have`;
    throw new GgufError("GGUF_ARRAY", detail, { byte, field });
  }
  room.elements -= count;
  return count;
}

function readBigints(cursor: Cursor, type: "UINT64" | "INT64", count: number, field: string): bigint[] {
  const { buffer } = cursor.bytes(count * 8, field);
  return Array.from(type === "INT64" ? new BigInt64Array(buffer) : new BigUint64Array(buffer));
}
