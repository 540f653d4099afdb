/**
 * What a GGUF file says of itself, as the reader hands it on: everything here has been checked against the
 * file's own bounds.  Source: the GGUF specification, version 3.
 */

/** A metadata value. 64-bit integers become `number` when they are safe integers, else `bigint`. */
export type MetadataValue = number | bigint | boolean | string | MetadataArray;

/** An array value; numeric arrays come as typed arrays, so that 150,000 scores cost no boxes. */
export type MetadataArray =
  | string[]
  | boolean[]
  | bigint[]
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array;

/** Typed look-ups over the key-value section. `get…` throws GgufError(GGUF_HPARAM) where key or kind is wrong. */
export interface Metadata {
  readonly entries: ReadonlyMap<string, MetadataValue>;
  has(key: string): boolean;
  /** A finite number. Without `fallback` a missing key is an error that names it. */
  getNumber(key: string, fallback?: number): number;
  /** An integer >= 0. */
  getCount(key: string, fallback?: number): number;
  getString(key: string, fallback?: string): string;
  getBoolean(key: string, fallback?: boolean): boolean;
  getStrings(key: string): string[] | undefined;
  /** A numeric array of any element type. */
  getNumbers(key: string): ArrayLike<number> | undefined;
}

/** The tensor types that compy computes with; the value is ggml's type id. */
export const TENSOR_TYPES = {
  F32: 0,
  F16: 1,
  Q4_0: 2,
  Q4_1: 3,
  Q5_0: 6,
  Q5_1: 7,
  Q8_0: 8,
  Q2_K: 10,
  Q3_K: 11,
  Q4_K: 12,
  Q5_K: 13,
  Q6_K: 14,
  IQ4_NL: 20,
  IQ4_XS: 23,
  BF16: 30,
  MXFP4: 39,
} as const;
export type TensorType = keyof typeof TENSOR_TYPES;

export interface TensorInfo {
  readonly name: string;
  readonly type: TensorType;
  /** ggml order: the contiguous dimension first, so a matrix is [columns, rows]. */
  readonly shape: readonly number[];
  /** Byte offset from the start of the file. */
  readonly offset: number;
  readonly byteLength: number;
}

export interface GgufFile {
  readonly path: string;
  readonly fileSize: number;
  readonly version: number;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
}
