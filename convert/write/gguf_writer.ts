import { crc32 } from "node:zlib";
import { VALUE_TYPES, type ValueType } from "../../engine/gguf/key_values.ts";
import { FORMATS } from "../../engine/gguf/formats.ts";
import { ConvertError } from "../errors.ts";
import type { Entry } from "./metadata.ts";
import type { OutputTensor } from "./output_tensor.ts";

const VERSION = 3;
/** Default alignment of GGUF files in bytes. */
const ALIGNMENT = 32;

/** Called during writing with the bytes of tensor data so far and in total. */
export type Progress = (done: number, total: number) => void;

export interface WriteOptions {
  readonly progress?: Progress;
  readonly signal?: AbortSignal;
  /** Number of later chunks that may be computed while the writer waits for a chunk; by default none. */
  readonly ahead?: number;
}

/**
 * Writes a GGUF file of version 3 into an empty open file, tensor after tensor, and returns the CRC-32 of each tensor's
 * bytes. Throws the reason of an aborted `signal`. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
export async function writeGguf(
  file: Deno.FsFile,
  entries: readonly Entry[],
  tensors: readonly OutputTensor[],
  { progress, signal, ahead = 0 }: WriteOptions = {},
): Promise<number[]> {
  const total = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  await writeAll(file, header(entries, tensors));
  const checksums: number[] = [];
  let [checksum, length, done] = [0, 0, 0];
  for await (const chunk of inOrder(chunksOf(tensors), ahead)) {
    if (chunk !== END) {
      checksum = crc32(chunk, checksum);
      length += chunk.length;
      await writeAll(file, chunk);
      // Signals only arrive between turns of the event loop.
      signal?.throwIfAborted();
      progress?.(done + length, total);
      continue;
    }
    const { name, byteLength } = tensors[checksums.length];
    if (length !== byteLength) {
      throw new ConvertError(
        `Cannot write tensor "${name}": it has ${length} bytes, expected ${byteLength}`,
      );
    }
    await writeAll(file, new Uint8Array(-length & (ALIGNMENT - 1)));
    checksums.push(checksum);
    done += length;
    [checksum, length] = [0, 0];
  }
  return checksums;
}

/** Marks the end of a tensor. */
const END = "end";

function* chunksOf(
  tensors: readonly OutputTensor[],
): Generator<Uint8Array | Promise<Uint8Array> | typeof END> {
  for (const tensor of tensors) {
    yield* tensor.chunks();
    yield END;
  }
}

/** Yields the results in order. While it awaits a result, it starts up to `ahead` later ones. */
async function* inOrder<T>(results: Iterable<T | Promise<T>>, ahead: number): AsyncGenerator<T> {
  const pending: Promise<T>[] = [];
  for (const result of results) {
    const promise = Promise.resolve(result);
    promise.catch(() => {}); // an earlier result may reject first
    pending.push(promise);
    if (pending.length > ahead) yield await pending.shift()!;
  }
  yield* pending;
}

async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await file.write(bytes.subarray(at));
}

/** Returns the bytes before the tensor data, padded to the data's start. */
export function header(entries: readonly Entry[], tensors: readonly OutputTensor[]): Uint8Array {
  const out = new Bytes();
  out.text("GGUF");
  out.u32(VERSION);
  out.u64(tensors.length);
  out.u64(entries.length);
  for (const { key, type, value } of entries) {
    out.string(key);
    if (Array.isArray(value)) {
      out.u32(VALUE_TYPES.indexOf("ARRAY"));
      out.u32(VALUE_TYPES.indexOf(type));
      out.u64(value.length);
      for (const element of value) out.value(type, element);
    } else {
      out.u32(VALUE_TYPES.indexOf(type));
      out.value(type, value as Exclude<Entry["value"], readonly unknown[]>);
    }
  }
  let offset = 0;
  for (const { name, type, shape, byteLength } of tensors) {
    out.string(name);
    out.u32(shape.length);
    for (const size of shape) out.u64(size);
    out.u32(FORMATS[type].id);
    out.u64(offset);
    offset += Math.ceil(byteLength / ALIGNMENT) * ALIGNMENT;
  }
  return out.padded(ALIGNMENT);
}

/** A growing buffer of little-endian values. */
class Bytes {
  #view = new DataView(new ArrayBuffer(65_536));
  #length = 0;
  readonly #encoder = new TextEncoder();

  text(text: string): void {
    const bytes = this.#encoder.encode(text);
    const at = this.#grow(bytes.length);
    new Uint8Array(this.#view.buffer).set(bytes, at);
  }

  string(text: string): void {
    const at = this.#grow(8);
    const start = this.#length;
    this.text(text);
    this.#view.setBigUint64(at, BigInt(this.#length - start), true);
  }

  u32(value: number): void {
    const at = this.#grow(4);
    this.#view.setUint32(at, value, true);
  }

  u64(value: number): void {
    const at = this.#grow(8);
    this.#view.setBigUint64(at, BigInt(value), true);
  }

  value(type: Exclude<ValueType, "ARRAY">, value: number | boolean | string): void {
    switch (type) {
      case "STRING":
        return this.string(String(value));
      case "BOOL": {
        const at = this.#grow(1);
        return this.#view.setUint8(at, value ? 1 : 0);
      }
      case "FLOAT32": {
        const at = this.#grow(4);
        return this.#view.setFloat32(at, Number(value), true);
      }
      case "INT32":
      case "UINT32":
        return this.u32(Number(value));
      default:
        throw new TypeError(`no value of a converted file is ${type}`);
    }
  }

  padded(alignment: number): Uint8Array {
    this.#grow(-this.#length & (alignment - 1));
    return new Uint8Array(this.#view.buffer, 0, this.#length);
  }

  /** Appends `count` zeros and returns their offset. */
  #grow(count: number): number {
    const at = this.#length;
    this.#length += count;
    if (this.#length > this.#view.byteLength) {
      const larger = new Uint8Array(Math.max(this.#length, 2 * this.#view.byteLength));
      larger.set(new Uint8Array(this.#view.buffer, 0, at));
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }
}
