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

/**
 * Writes a GGUF file of version 3 into an empty open file, tensor after tensor, and returns the CRC-32 of each tensor's
 * bytes. Throws the reason of an aborted `signal`. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
export async function writeGguf(
  file: Deno.FsFile,
  entries: readonly Entry[],
  tensors: readonly OutputTensor[],
  progress: Progress,
  signal?: AbortSignal,
): Promise<number[]> {
  const total = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  await writeAll(file, header(entries, tensors));
  const checksums: number[] = [];
  let done = 0;
  for (const tensor of tensors) {
    let checksum = 0;
    let length = 0;
    for (const chunk of tensor.chunks()) {
      checksum = crc32(chunk, checksum);
      length += chunk.length;
      await writeAll(file, chunk);
      // Signals only arrive between turns of the event loop.
      signal?.throwIfAborted();
      progress(done + length, total);
    }
    if (length !== tensor.byteLength) {
      throw new ConvertError(
        `Cannot write tensor "${tensor.name}": it became ${length} bytes, not ${tensor.byteLength}`,
      );
    }
    await writeAll(file, new Uint8Array(-length & (ALIGNMENT - 1)));
    checksums.push(checksum);
    done += length;
  }
  return checksums;
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
