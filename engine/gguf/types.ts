import type { OpenSource } from "./byte_source.ts";
import type { FORMATS } from "./formats.ts";

/**
 * Contents of a GGUF file's header. The reader has checked them against the file's limits.
 *
 * Source: the GGUF specification, version 3.
 */

/** A metadata value. 64-bit integers are `number` if they are safe integers, else `bigint`. */
export type MetadataValue = number | bigint | boolean | string | MetadataArray;

/** An array value. Numbers are typed arrays, which avoids allocating an object per element. */
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

/** Typed access to metadata. `get…` throws GgufError(GGUF_HPARAM) for a missing key or wrong type. */
export interface Metadata {
  readonly entries: ReadonlyMap<string, MetadataValue>;
  has(key: string): boolean;
  /** Returns the key's finite number. Throws for a missing key without `fallback`. */
  getNumber(key: string, fallback?: number): number;
  /** Returns the key's integer >= 0. */
  getCount(key: string, fallback?: number): number;
  getString(key: string, fallback?: string): string;
  getBoolean(key: string, fallback?: boolean): boolean;
  getStrings(key: string): string[] | undefined;
  /** Returns the key's numeric array, of any element type. */
  getNumbers(key: string): ArrayLike<number> | undefined;
}

/** A supported tensor type, by ggml's name. */
export type TensorType = keyof typeof FORMATS;

export interface TensorInfo {
  readonly name: string;
  readonly type: TensorType;
  /** The tensor's shape in ggml order: contiguous dimension first, so a matrix is [columns, rows]. */
  readonly shape: readonly number[];
  /** Path of the model file that contains the tensor. */
  readonly path: string;
  /** Byte offset of the tensor from the start of its file. */
  readonly offset: number;
  readonly byteLength: number;
  /** Returns the tensor's bytes; set only for a tensor that is computed from the file's values. Throws GgufError. */
  readonly made?: MakeBytes;
}

/** Computes a tensor's bytes. */
export type MakeBytes = (dequantize: Dequantize) => Promise<Uint8Array>;

/** Returns the values of quantized blocks. Throws if a block is damaged. */
export type Dequantize = (type: TensorType, blocks: Uint8Array) => Promise<Float32Array>;

/** A tensor of 64-bit integers. */
export interface IntegerTensor {
  readonly path: string;
  /** Byte offset of the values from the start of the file. */
  readonly offset: number;
  /** Number of values, of 8 bytes each. */
  readonly length: number;
}

/** A model's file, or all files of a split model read as one. */
export interface GgufFile {
  /** The path of the model as the caller gave it. */
  readonly path: string;
  /** Paths of all files of the model, in order. */
  readonly paths: readonly string[];
  /** Bytes of all model files together. */
  readonly fileSize: number;
  readonly version: number;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Tensors of 64-bit integers, such as a drafter's table of tokens; empty in a model's file. */
  readonly integers: ReadonlyMap<string, IntegerTensor>;
  /** Opens one of the model's files (`paths`) to read tensors from it. */
  readonly open: OpenSource;
}
