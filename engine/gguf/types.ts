import type { OpenSource } from "./byte_source.ts";
import type { FORMATS } from "./formats.ts";

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

/** A tensor type that compy computes with, by ggml's name. */
export type TensorType = keyof typeof FORMATS;

export interface TensorInfo {
  readonly name: string;
  readonly type: TensorType;
  /** ggml order: the contiguous dimension first, so a matrix is [columns, rows]. */
  readonly shape: readonly number[];
  /** The file that holds it: one of the model's. */
  readonly path: string;
  /** Byte offset from the start of that file. */
  readonly offset: number;
  readonly byteLength: number;
}

/** A model's file, or the files that it was split into, read as one. */
export interface GgufFile {
  /** As it was named. */
  readonly path: string;
  /** All of them, in order. */
  readonly paths: readonly string[];
  /** Bytes of all of them. */
  readonly fileSize: number;
  readonly version: number;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Opens one of `paths` to read tensors from it. */
  readonly open: OpenSource;
}
