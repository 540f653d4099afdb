import type { Hash } from "node:crypto";
import { type ByteSource, withSources } from "../gguf/byte_source.ts";
import { openGguf } from "../gguf/reader.ts";
import type { GgufFile, MetadataValue, TensorInfo } from "../gguf/types.ts";

/** Identifies a model's content by SHA-256 digests in hex. */
export interface ModelFingerprint {
  /** Digest of the tensors and of all metadata except the chat templates. */
  readonly weights: string;
  /** Digest of the chat templates; the digest of zero bytes when the file has none. */
  readonly chatTemplate: string;
}

const TEMPLATE_KEY = "tokenizer.chat_template";
const PAGE_BYTES = 4096;
const PAGES = 8;

/**
 * Returns a model file's fingerprint by content. Tensors of up to 32 KiB are read in full. Of a larger tensor it
 * reads 8 pages of 4 KiB, spread from the first to the last byte. Training, merging or quantizing again changes all
 * these pages, and 27 billion weights take less than a second.
 *
 * It does not detect a file made to deceive: a change between those pages keeps the fingerprint. Throws
 * Error when the file became shorter meanwhile.
 */
export async function fingerprintModel(gguf: GgufFile): Promise<ModelFingerprint> {
  const { createHash } = process.getBuiltinModule("node:crypto"); // not imported: browsers load this file too
  const [weights, chatTemplate] = [createHash("sha256"), createHash("sha256")];
  for (const [key, value] of gguf.metadata.entries) {
    // The keys of split files are skipped, so that a model in one file has the same fingerprint as its shards.
    if (key.startsWith("split.")) continue;
    const hash = key.startsWith(TEMPLATE_KEY) ? chatTemplate : weights;
    addEntry(hash, key, value);
  }
  await withSources(gguf, (files) => sampleTensors(gguf, files, weights));
  return { weights: weights.digest("hex"), chatTemplate: chatTemplate.digest("hex") };
}

/** Returns the digest of a file's tensors and metadata. Throws GgufError. */
export async function fingerprintFile(path: string): Promise<string> {
  return (await fingerprintModel(await openGguf(path))).weights;
}

/** Returns the fingerprint digest for a file with this single chat template. */
export function fingerprintTemplate(source: string): string {
  const { createHash } = process.getBuiltinModule("node:crypto");
  const hash = createHash("sha256");
  addEntry(hash, TEMPLATE_KEY, source);
  return hash.digest("hex");
}

function addEntry(hash: Hash, key: string, value: MetadataValue): void {
  hash.update(`${JSON.stringify(key)} `);
  if (ArrayBuffer.isView(value)) hash.update(value);
  else hash.update(JSON.stringify(value, (_, part) => typeof part === "bigint" ? `${part}n` : part));
}

async function sampleTensors(
  { tensors }: GgufFile,
  files: ReadonlyMap<string, ByteSource>,
  hash: Hash,
): Promise<void> {
  const buffer = new Uint8Array(PAGES * PAGE_BYTES);
  const update = async (path: string, offset: number, length: number) => {
    const bytes = buffer.subarray(0, length);
    const source = files.get(path)!;
    // Reads are synchronous if possible: there are thousands of pages.
    const got = source.readSync?.(offset, bytes) ?? await source.read(offset, bytes);
    if (got < length) throw new Error(`"${path}" became shorter while it was read`);
    hash.update(bytes);
  };
  for (const tensor of tensors.values()) {
    const { name, type, shape, path, offset, byteLength } = tensor;
    hash.update(JSON.stringify([name, type, shape]));
    if (byteLength <= buffer.length) await update(path, offset, byteLength);
    else for (const page of pagesOf(tensor)) await update(path, page, PAGE_BYTES);
  }
}

/** Returns the file offsets of the pages to read from a large tensor. */
function pagesOf({ offset, byteLength }: TensorInfo): number[] {
  const last = byteLength - PAGE_BYTES;
  return Array.from({ length: PAGES }, (_, n) => offset + Math.floor(last * n / (PAGES - 1)));
}
