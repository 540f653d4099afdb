import { FORMATS } from "../engine/gguf/formats.ts";
import { parseGguf } from "../engine/gguf/reader.ts";
import type { TensorType } from "../engine/gguf/types.ts";

/** Bytes of a value by GGUF's type id; strings (8) and arrays (9) contain their own size. */
const VALUE_BYTES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
const ALIGNMENT = 32;

/** Writes consecutive little-endian fields. */
class Out {
  readonly #parts: Uint8Array[] = [];
  length = 0;

  bytes(bytes: Uint8Array): this {
    this.#parts.push(bytes);
    this.length += bytes.length;
    return this;
  }

  number(value: number, bytes: 2 | 4 | 8): this {
    const view = new DataView(new ArrayBuffer(8));
    view.setBigUint64(0, BigInt(value), true);
    return this.bytes(new Uint8Array(view.buffer, 0, bytes));
  }

  string(text: string): this {
    const utf8 = new TextEncoder().encode(text);
    return this.number(utf8.length, 8).bytes(utf8);
  }

  pad(): this {
    return this.bytes(new Uint8Array(-this.length & (ALIGNMENT - 1)));
  }

  result(): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.#parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}

/** Returns the offset of the end of a file's metadata. */
function keyValueEnd(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u64 = (at: number) => Number(view.getBigUint64(at, true));
  const valueEnd = (type: number, at: number): number => {
    if (type === 8) return at + 8 + u64(at);
    if (type !== 9) return at + VALUE_BYTES[type];
    const element = view.getUint32(at, true);
    let end = at + 12;
    for (let i = u64(at + 4); i > 0; i--) end = valueEnd(element, end);
    return end;
  };
  let at = 24;
  for (let left = u64(16); left > 0; left--) {
    const type = at + 8 + u64(at);
    at = valueEnd(view.getUint32(type, true), type + 4);
  }
  return at;
}

/** A tensor to write. */
export interface NewTensor {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly number[]; // ggml order
  readonly bytes: Uint8Array;
}

/** Returns the start of a GGUF version 3 file: the magic, the version, and the numbers of tensors and metadata keys. */
function start(tensors: number, keys: number): Out {
  return new Out().bytes(new TextEncoder().encode("GGUF")).number(3, 4).number(tensors, 8).number(keys, 8);
}

/** Appends the table of tensors and their bytes, and returns the whole file. */
function finish(out: Out, tensors: readonly NewTensor[]): Uint8Array<ArrayBuffer> {
  let offset = 0;
  for (const { name, type, shape, bytes } of tensors) {
    out.string(name).number(shape.length, 4);
    for (const size of shape) out.number(size, 8);
    out.number(FORMATS[type].id, 4).number(offset, 8);
    offset += Math.ceil(bytes.length / ALIGNMENT) * ALIGNMENT;
  }
  out.pad();
  for (const { bytes } of tensors) out.bytes(bytes).pad();
  return out.result();
}

/** Returns a GGUF file with the metadata of the GGUF file `bytes`, and with `tensors` instead of its tensors. */
export function withTensors(bytes: Uint8Array, tensors: readonly NewTensor[]): Uint8Array<ArrayBuffer> {
  const keys = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(16, true));
  return finish(start(tensors.length, keys).bytes(bytes.subarray(24, keyValueEnd(bytes))), tensors);
}

/** Splits a GGUF file like llama.cpp's splitter: `count` files with about the same number of tensors. */
export function splitGguf(bytes: Uint8Array, count: number): Uint8Array<ArrayBuffer>[] {
  const keyValues = bytes.subarray(24, keyValueEnd(bytes));
  const keys = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(16, true));
  const tensors = Array.from(
    parseGguf(bytes).tensors.values(),
    ({ name, type, shape, offset, byteLength }) => (
      { name, type, shape, bytes: bytes.subarray(offset, offset + byteLength) }
    ),
  );
  return Array.from({ length: count }, (_, number) => {
    const [from, to] = [number, number + 1].map((n) => Math.floor(tensors.length * n / count));
    const out = start(to - from, 3 + (number === 0 ? keys : 0));
    if (number === 0) out.bytes(keyValues);
    out.string("split.no").number(2, 4).number(number, 2);
    out.string("split.count").number(2, 4).number(count, 2);
    out.string("split.tensors.count").number(5, 4).number(tensors.length, 4);
    return finish(out, tensors.slice(from, to));
  });
}

/** Writes the files as NAME-00001-of-00003.gguf and so on in one folder. Returns their paths. */
export async function writeShards(
  folder: string,
  name: string,
  shards: readonly Uint8Array[],
): Promise<string[]> {
  const digits = (number: number) => String(number).padStart(5, "0");
  const paths = shards.map((_, i) => `${folder}/${name}-${digits(i + 1)}-of-${digits(shards.length)}.gguf`);
  for (const [i, path] of paths.entries()) await Deno.writeFile(path, shards[i]);
  return paths;
}
