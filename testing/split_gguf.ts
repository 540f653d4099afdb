import { parseGguf } from "../engine/gguf/reader.ts";

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

/** Splits a GGUF file like llama.cpp's splitter: `count` files with about the same number of tensors. */
export function splitGguf(bytes: Uint8Array, count: number): Uint8Array<ArrayBuffer>[] {
  const keyValues = bytes.subarray(24, keyValueEnd(bytes));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tensors = [...parseGguf(bytes).tensors.values()];
  const typeIds = new Map(
    tensors.map((tensor) => [tensor.name, typeId(view, bytes, tensor.name, keyValues.byteLength + 24)]),
  );
  return Array.from({ length: count }, (_, number) => {
    const [from, to] = [number, number + 1].map((n) => Math.floor(tensors.length * n / count));
    const own = tensors.slice(from, to);
    const out = new Out().bytes(new TextEncoder().encode("GGUF")).number(3, 4).number(own.length, 8);
    out.number(3 + (number === 0 ? Number(view.getBigUint64(16, true)) : 0), 8);
    if (number === 0) out.bytes(keyValues);
    out.string("split.no").number(2, 4).number(number, 2);
    out.string("split.count").number(2, 4).number(count, 2);
    out.string("split.tensors.count").number(5, 4).number(tensors.length, 4);
    let offset = 0;
    for (const { name, shape, byteLength } of own) {
      out.string(name).number(shape.length, 4);
      for (const size of shape) out.number(size, 8);
      out.number(typeIds.get(name)!, 4).number(offset, 8);
      offset += Math.ceil(byteLength / ALIGNMENT) * ALIGNMENT;
    }
    out.pad();
    for (const { offset, byteLength } of own) out.bytes(bytes.subarray(offset, offset + byteLength)).pad();
    return out.result();
  });
}

/** Returns a tensor's type in the file's table. */
function typeId(view: DataView, bytes: Uint8Array, wanted: string, start: number): number {
  const text = new TextDecoder();
  for (let at = start;;) {
    const nameEnd = at + 8 + Number(view.getBigUint64(at, true));
    const type = nameEnd + 4 + 8 * view.getUint32(nameEnd, true);
    if (text.decode(bytes.subarray(at + 8, nameEnd)) === wanted) return view.getUint32(type, true);
    at = type + 4 + 8;
  }
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
