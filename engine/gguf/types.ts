import type { OpenSource } from "./byte_source.ts";
import type { FORMATS } from "./formats.ts";

/**
 * Contents of a GGUF file's header. The reader has checked everything here against the file's limits.
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

/**
 * Typed look-ups in the key-value section. `get…` throws GgufError(GGUF_HPARAM) for a missing key or wrong
 * type.
 */
export interface Metadata {
  readonly entries: ReadonlyMap<string, MetadataValue>;
  has(key: string): boolean;
  /** Returns a finite number. Without `fallback`, a missing key throws an error that names it. */
  getNumber(key: string, fallback?: number): number;
  /** Returns an integer >= 0. */
  getCount(key: string, fallback?: number): number;
  getString(key: string, fallback?: string): string;
  getBoolean(key: string, fallback?: boolean): boolean;
  getStrings(key: string): string[] | undefined;
  /** Returns a numeric array of any element type. */
  getNumbers(key: string): ArrayLike<number> | undefined;
}

/** A supported tensor type, by ggml's name. */
export type TensorType = keyof typeof FORMATS;

export interface TensorInfo {
  readonly name: string;
  readonly type: TensorType;
  /** ggml order: contiguous dimension first, so a matrix is [columns, rows]. */
  readonly shape: readonly number[];
  /** The model's file that holds the tensor. */
  readonly path: string;
  /** Byte offset from the start of that file. */
  readonly offset: number;
  readonly byteLength: number;
}

/** A model's file, or all files of a split model read as one. */
export interface GgufFile {
  /** The path as the caller gave it. */
  readonly path: string;
  /** Paths of all files, in order. */
  readonly paths: readonly string[];
  /** Bytes of all files together. */
  readonly fileSize: number;
  readonly version: number;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Opens one of `paths` to read tensors from it. */
  readonly open: OpenSource;
}
