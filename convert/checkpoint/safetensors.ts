import { quote } from "../../engine/gguf/errors.ts";
import { KIND_BYTES, notSafetensors } from "../../engine/gguf/real_kind.ts";
import { refuse } from "../errors.ts";
import { type Dtype, DTYPES, type SafeTensor } from "./tensors.ts";
import { decodeUtf8, inWords, isObject, parseJson } from "./json.ts";

/** Maximum bytes of a header. The largest published ones have about 5 MB; other libraries allow 100 MB. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;
const MAX_DIMENSIONS = 8;
const MAX_NAME_LENGTH = 1024;

/**
 * Returns the tensors in the header of an open safetensors file. Throws ConvertError for a wrong length,
 * type, shape or range, and for ranges that overlap, leave holes or do not fill the file.
 * Source: https://github.com/huggingface/safetensors#format
 */
export function readSafetensors(path: string, file: Deno.FsFile): SafeTensor[] {
  const { size, isFile } = file.statSync();
  if (!isFile) refuse(path, undefined, "not a regular file");
  if (size < 8) refuse(path, "header length", `the file must have at least 8 bytes (got ${size})`);
  const kind = notSafetensors(readAt(path, file, 0, Math.min(size, KIND_BYTES)));
  if (kind !== undefined) refuse(path, undefined, kind);
  const length = Number(new DataView(readAt(path, file, 0, 8).buffer).getBigUint64(0, true));
  if (length > MAX_HEADER_BYTES) {
    refuse(path, "header length", `must be at most ${MAX_HEADER_BYTES} bytes (got ${length})`);
  }
  if (length > size - 8) {
    refuse(path, "header length", `must be at most ${size - 8} bytes (got ${length}): the file is cut short`);
  }
  const header = parseJson(path, decodeUtf8(path, readAt(path, file, 8, length)));
  if (!isObject(header)) refuse(path, "header", `must be an object (got ${inWords(header)})`);
  const tensors: SafeTensor[] = [];
  for (const [name, entry] of Object.entries(header)) {
    if (name !== "__metadata__") tensors.push(readEntry(path, name, entry, 8 + length, size));
  }
  checkCover(path, tensors, 8 + length, size);
  return tensors;
}

/** Returns exactly `length` bytes. Throws ConvertError when the file ends earlier. */
function readAt(path: string, file: Deno.FsFile, offset: number, length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  readFully(path, file, offset, bytes);
  return bytes;
}

/** Fills `into` with the file's bytes from `offset` on. Throws ConvertError when the file ends earlier. */
export function readFully(path: string, file: Deno.FsFile, offset: number, into: Uint8Array): void {
  file.seekSync(offset, Deno.SeekMode.Start);
  for (let at = 0; at < into.length;) {
    const n = file.readSync(into.subarray(at));
    if (n === null) refuse(path, undefined, `the file ended at byte ${offset + at} while it was read`);
    at += n;
  }
}

function readEntry(path: string, name: string, entry: unknown, start: number, size: number): SafeTensor {
  const field = `tensor ${quote(name)}`;
  if (name === "" || name.length > MAX_NAME_LENGTH) {
    refuse(path, field, `its name must have 1 to ${MAX_NAME_LENGTH} characters (got ${name.length})`);
  }
  if (!isObject(entry)) refuse(path, field, `must be an object (got ${inWords(entry)})`);
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== "string" || !Object.hasOwn(DTYPES, dtype)) {
    refuse(path, field, `dtype must be one of ${Object.keys(DTYPES).join(", ")} (got ${inWords(dtype)})`);
  }
  if (!isCounts(shape) || shape.length > MAX_DIMENSIONS) {
    refuse(path, field, `shape must be at most ${MAX_DIMENSIONS} whole numbers (got ${listInWords(shape)})`);
  }
  if (!isCounts(offsets) || offsets.length !== 2 || offsets[0] > offsets[1]) {
    refuse(path, field, `data_offsets must be a begin and an end (got ${listInWords(offsets)})`);
  }
  const [begin, end] = offsets;
  if (end > size - start) {
    const detail = `its data end at byte ${end} of ${size - start}: the file is cut short`;
    refuse(path, field, detail);
  }
  const bytes = shape.reduce((product, n) => product * n, DTYPES[dtype as Dtype]);
  if (bytes !== end - begin) {
    const detail = `must have ${bytes} bytes for ${dtype} of shape ${shape.join(" x ")} (got ${end - begin})`;
    refuse(path, field, detail);
  }
  return { name, dtype: dtype as Dtype, shape, file: path, offset: start + begin, byteLength: bytes };
}

/**
 * Throws ConvertError for overlaps and holes, which the format forbids. A duplicate name in the header leaves
 * a hole, too.
 */
function checkCover(path: string, tensors: readonly SafeTensor[], start: number, size: number): void {
  let at = start;
  const inOrder = [...tensors].sort((a, b) => a.offset - b.offset || a.byteLength - b.byteLength);
  for (const { name, offset, byteLength } of inOrder) {
    if (offset !== at) {
      const what = offset < at ? "overlap the tensor before" : "leave a hole after the tensor before";
      refuse(path, `tensor ${quote(name)}`, `its data at byte ${offset} ${what} (byte ${at})`);
    }
    at += byteLength;
  }
  if (at !== size) refuse(path, undefined, `there are ${size - at} bytes after the last tensor`);
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && n >= 0);
}

function listInWords(value: unknown): string {
  return quote(JSON.stringify(Array.isArray(value) ? value.slice(0, 9).map(inWords) : inWords(value)));
}
