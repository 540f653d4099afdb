import { type ByteSource, memorySource, openFile, type OpenSource, readBytes } from "./byte_source.ts";
import { Cursor, type ReadableBytes } from "./cursor.ts";
import { GgufError, quote } from "./errors.ts";
import { readKeyValues } from "./key_values.ts";
import { MetadataMap } from "./metadata.ts";
import { KIND_BYTES, notGguf } from "./real_kind.ts";
import { isShard, joinShards } from "./shards.ts";
import { readTensorTable } from "./tensor_table.ts";
import type { GgufFile } from "./types.ts";

/** Bytes of the smallest key-value pair: key length, a key of one byte, type, a value of one byte. */
const MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1;
/** Bytes of the smallest tensor entry: name length, a name of one byte, rank, one dimension, type, offset. */
const MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8;
const MAX_KEY_VALUES = 65_536;
const MAX_TENSORS = 131_072;

/** Bytes fetched first from an asynchronous source. The amount doubles until it includes the whole header. */
const FIRST_BYTES = 2 ** 20;

/**
 * Reads and checks the header of a GGUF file: version 2 or 3, little-endian. Tensor data is not read. Any shard of a
 * split model opens the whole model; the other shards must lie beside it. `open` opens the files, by default from disk.
 * Throws GgufError for a file that violates the format or a limit of this reader, and the errors of `open` and its
 * sources. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
export async function openGguf(path: string, open: OpenSource = openModelFile): Promise<GgufFile> {
  const one = async (path: string): Promise<GgufFile> => {
    await using source = await open(path);
    if (!source.readSync) return await parseFetched(path, source, open);
    return parse(path, { size: source.size, read: (offset, into) => source.readSync!(offset, into) }, open);
  };
  const file = await one(path);
  return isShard(file) ? await joinShards(file, one) : file;
}

/** Opens a model file as openFile does, but throws GgufError for a folder or another special file. */
function openModelFile(path: string): Promise<ByteSource> {
  return openFile(path).catch((error) => {
    if (!(error instanceof TypeError)) throw error;
    const detail = "not a regular file; a GGUF file is needed";
    throw new GgufError("GGUF_MAGIC", detail, { byte: 0, field: "magic" });
  });
}

/** Thrown inside the parser if the header needs bytes that are not fetched yet. */
class NotFetched extends Error {
  constructor(readonly end: number) {
    super(`byte ${end} is needed`);
  }
}

/** Parses a header from an asynchronous source. Fetches only as much as the header needs. */
async function parseFetched(path: string, source: ByteSource, open: OpenSource): Promise<GgufFile> {
  const { size } = source;
  for (let wanted = Math.min(size, FIRST_BYTES);;) {
    const bytes = await readBytes(source, 0, wanted);
    const read = (offset: number, into: Uint8Array) => {
      const end = Math.min(size, offset + into.length);
      if (end > bytes.length) throw new NotFetched(end);
      into.set(bytes.subarray(offset, end));
      return end - offset;
    };
    try {
      return parse(path, { size, read }, open);
    } catch (error) {
      if (!(error instanceof NotFetched)) throw error;
      wanted = Math.min(size, Math.max(error.end, 2 * wanted));
    }
  }
}

/**
 * Parses a GGUF header as `openGguf` does, from bytes in memory. `bytes`: at least the header; `fileSize`: bytes of the
 * whole file.
 */
export function parseGguf(bytes: Uint8Array, fileSize: number = bytes.length, path = "(memory)"): GgufFile {
  const { readSync } = memorySource(bytes);
  return parse(path, { size: fileSize, read: readSync! }, () => Promise.resolve(memorySource(bytes)));
}

function parse(path: string, source: ReadableBytes, open: OpenSource): GgufFile {
  const cursor = new Cursor(source);
  const version = readVersion(cursor);
  const tensorCount = readCount(cursor, "tensor count", MIN_TENSOR_BYTES, MAX_TENSORS);
  const keyValueCount = readCount(cursor, "key-value count", MIN_KEY_VALUE_BYTES, MAX_KEY_VALUES);
  const { entries, positions, alignment } = readKeyValues(cursor, keyValueCount);
  const { tensors, integers } = readTensorTable(cursor, tensorCount, alignment, source.size, path);
  const metadata = new MetadataMap(entries, positions);
  return { path, paths: [path], fileSize: source.size, version, metadata, tensors, integers, open };
}

function readVersion(cursor: Cursor): number {
  if (cursor.remaining < 4) {
    const detail = `a GGUF file must begin with "GGUF" (got a file of ${cursor.remaining} bytes)`;
    throw new GgufError("GGUF_MAGIC", detail, { byte: 0, field: "magic" });
  }
  const first = cursor.bytes(4, "magic");
  const magic = String.fromCharCode(...first);
  if (magic === "FUGG") refuseEndian(0, "magic");
  if (magic !== "GGUF") refuseMagic(cursor, first);
  const version = cursor.u32("version");
  // In a byte-swapped file, the version number is in the upper bytes.
  if (version !== 0 && (version & 0xffff) === 0) refuseEndian(4, "version");
  if (version !== 2 && version !== 3) {
    throw new GgufError("GGUF_VERSION", `must be 2 or 3 (got ${version})`, { byte: 4, field: "version" });
  }
  return version;
}

/** Throws GgufError for a file without GGUF's magic, and names the file's kind. The cursor must be after the magic. */
function refuseMagic(cursor: Cursor, magic: Uint8Array): never {
  const next = cursor.bytes(Math.min(KIND_BYTES - magic.length, cursor.remaining), "magic");
  const kind = notGguf(Uint8Array.of(...magic, ...next)) ?? "this is not a GGUF file";
  const detail = `must be "GGUF" (got ${quote(String.fromCharCode(...magic))}): ${kind}`;
  throw new GgufError("GGUF_MAGIC", detail, { byte: 0, field: "magic" });
}

function refuseEndian(byte: number, field: string): never {
  throw new GgufError("GGUF_ENDIAN", "the file is big-endian; only little-endian files are supported", {
    byte,
    field,
  });
}

function readCount(cursor: Cursor, field: string, minBytes: number, cap: number): number {
  const byte = cursor.position;
  const count = cursor.length(field);
  const fits = Math.floor(cursor.remaining / minBytes);
  if (count > fits) {
    const detail = `must be at most ${fits} (got ${cursor.exactLength}): ${cursor.endInWords}`;
    throw new GgufError("GGUF_COUNT", detail, { byte, field });
  }
  if (count > cap) {
    throw new GgufError("GGUF_COUNT", `must be at most ${cap} (got ${count})`, { byte, field });
  }
  return count;
}
