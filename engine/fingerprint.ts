import type { Hash } from "node:crypto";
import { type ByteSource, type OpenSource, withSources } from "./gguf/byte_source.ts";
import { openGguf } from "./gguf/reader.ts";
import type { GgufFile, TensorInfo } from "./gguf/types.ts";

/** What tells a model's content from another's: SHA-256 in hex. */
export interface ModelFingerprint {
  /** Of the tensors and of all metadata but the chat templates. */
  readonly weights: string;
  /** Of the chat templates; of nothing where the file has none. */
  readonly chatTemplate: string;
}

const TEMPLATE_KEY = "tokenizer.chat_template";
const PAGE_BYTES = 4096;
const PAGES = 8;

/**
 * Fingerprints a model file by its content. Of each tensor it reads 8 pages of 4 KiB spread from its first to its last
 * byte, of one of up to 32 KiB every byte: training, merging or quantising anew changes them all, and 27 billion weights
 * take less than a second. It is no protection from a file made to deceive: one that differs between those pages only
 * has the same fingerprint. Throws GgufError, and where the file became shorter meanwhile.
 */
export async function fingerprintModel(path: string, open?: OpenSource): Promise<ModelFingerprint> {
  const gguf = await openGguf(path, open);
  const { createHash } = process.getBuiltinModule("node:crypto"); // a browser reads this file too, and has no such module
  const [weights, chatTemplate] = [createHash("sha256"), createHash("sha256")];
  for (const [key, value] of gguf.metadata.entries) {
    // The same model in one file or in several.
    if (key.startsWith("split.")) continue;
    const hash = key.startsWith(TEMPLATE_KEY) ? chatTemplate : weights;
    hash.update(`${JSON.stringify(key)} `);
    if (ArrayBuffer.isView(value)) hash.update(value);
    else hash.update(JSON.stringify(value, (_, part) => typeof part === "bigint" ? `${part}n` : part));
  }
  await withSources(gguf, (files) => sampleTensors(gguf, files, weights));
  return { weights: weights.digest("hex"), chatTemplate: chatTemplate.digest("hex") };
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
    // Without a wait where that can be had: there are thousands of pages.
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

/** Offsets in the file of the pages that are read of a large tensor. */
function pagesOf({ offset, byteLength }: TensorInfo): number[] {
  const last = byteLength - PAGE_BYTES;
  return Array.from({ length: PAGES }, (_, n) => offset + Math.floor(last * n / (PAGES - 1)));
}
