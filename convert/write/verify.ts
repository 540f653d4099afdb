import { crc32 } from "node:zlib";
import { readPlan } from "../../engine/architectures/registry.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile, TensorInfo } from "../../engine/gguf/types.ts";
import { createChatTemplate } from "../../engine/chat/template/chat_template.ts";
import { ChatTemplateError } from "../../engine/tokenizer/types.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { positionTensors, readTower } from "../../engine/vision/shape.ts";
import { buildTower } from "../../engine/vision/tower_plan.ts";
import { ConvertError } from "../errors.ts";
import type { Progress } from "./gguf_writer.ts";
import type { OutputTensor } from "./output_tensor.ts";

const CHUNK_BYTES = 4 * 1024 * 1024;

/**
 * Reads a written file back with the engine's reader, and compares each tensor's shape, type and bytes with the
 * intended ones. Throws ConvertError if they differ.
 */
export async function verify(
  path: string,
  tensors: readonly OutputTensor[],
  checksums: readonly number[],
  progress: Progress,
  signal?: AbortSignal,
): Promise<GgufFile> {
  const file = await openGguf(path);
  if (file.tensors.size !== tensors.length) {
    throw new ConvertError(
      `Cannot verify ${path}: it has ${file.tensors.size} tensors, not ${tensors.length}`,
    );
  }
  using source = await Deno.open(path);
  const buffer = new Uint8Array(CHUNK_BYTES);
  const total = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  let done = 0;
  for (const [i, tensor] of tensors.entries()) {
    const info = file.tensors.get(tensor.name);
    const same = info !== undefined && info.type === tensor.type &&
      String(info.shape) === String(tensor.shape) &&
      await checksum(source, info, buffer) === checksums[i];
    if (!same) {
      throw new ConvertError(
        `Cannot verify ${path}: tensor "${tensor.name}" is not what was written; is the disk sound?`,
      );
    }
    done += tensor.byteLength;
    signal?.throwIfAborted();
    progress(done, total);
  }
  return file;
}

async function checksum(file: Deno.FsFile, info: TensorInfo, buffer: Uint8Array): Promise<number> {
  await file.seek(info.offset, Deno.SeekMode.Start);
  let result = 0;
  for (let left = info.byteLength; left > 0;) {
    const n = await file.read(buffer.subarray(0, Math.min(left, buffer.length)));
    if (n === null) break;
    result = crc32(buffer.subarray(0, n), result);
    left -= n;
  }
  return result;
}

/** Returns the reason why compy cannot run the file's model; undefined if it can. */
export function refusalOf(file: GgufFile): Promise<string | undefined> {
  return reasonOf(async () => {
    await readPlan(file);
    createChatTemplate(file.metadata, createTokenizer(file.metadata));
  });
}

/** Returns the reason why compy cannot read images with the file's tower; undefined if it can. */
export function towerRefusalOf(file: GgufFile): Promise<string | undefined> {
  return reasonOf(() => {
    const shape = readTower(file);
    buildTower(file, shape);
    positionTensors(file, shape);
  });
}

async function reasonOf(read: () => void | Promise<void>): Promise<string | undefined> {
  try {
    await read();
  } catch (error) {
    if (error instanceof GgufError || error instanceof ChatTemplateError) return error.message;
    throw error;
  }
}
