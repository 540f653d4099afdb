import { readBytes, SourceEnded } from "./byte_source.ts";
import { GgufError, quote } from "./errors.ts";
import { requireTensor } from "./hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "./types.ts";

/** Returns the F32 tensor of that name and shape. Throws GgufError(GGUF_HPARAM). */
export function requireFloats(file: GgufFile, name: string, shape: readonly number[]): TensorInfo {
  const info = requireTensor(file, name, shape);
  if (info.type === "F32") return info;
  throw new GgufError("GGUF_HPARAM", `must be of type F32 (got ${info.type})`, {
    field: `tensor ${quote(name)}`,
  });
}

/** Returns the values of an F32 tensor. Throws GgufError if the file has shrunk. */
export async function readFloats(file: GgufFile, info: TensorInfo): Promise<Float32Array<ArrayBuffer>> {
  return new Float32Array(await readTensor(file, info));
}

/** Returns a tensor's bytes. Throws GgufError if the file has shrunk. */
export async function readTensor(file: GgufFile, info: TensorInfo): Promise<ArrayBuffer> {
  await using source = await file.open(info.path);
  const bytes = await readBytes(source, info.offset, info.byteLength).catch((error) => {
    if (!(error instanceof SourceEnded)) throw error;
    const place = { byte: info.offset, field: `tensor ${quote(info.name)}` };
    throw new GgufError("GGUF_TRUNCATED", `the file ended: ${error.message}`, place);
  });
  return bytes.buffer;
}
