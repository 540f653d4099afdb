import { readBytes, SourceEnded } from "./byte_source.ts";
import { GgufError, quote } from "./errors.ts";
import { requireTensor } from "./hparams/hparams.ts";
import type { GgufFile, TensorInfo, TensorType } from "./types.ts";

/** Values and bytes of a Q8_0 block: an F16 scale, then the values. */
const BLOCK = 32;
const BLOCK_BYTES = 34;

const DECODERS: { readonly [Type in TensorType]?: (bytes: ArrayBuffer) => Float32Array } = {
  F32: (bytes) => new Float32Array(bytes),
  F16: (bytes) => Float32Array.from(new Float16Array(bytes)),
  BF16: (bytes) => new Float32Array(Uint32Array.from(new Uint16Array(bytes), (half) => half << 16).buffer),
  Q8_0: (bytes) => {
    const view = new DataView(bytes);
    const value = (_: unknown, i: number) => {
      const at = Math.floor(i / BLOCK) * BLOCK_BYTES;
      return view.getFloat16(at, true) * view.getInt8(at + 2 + i % BLOCK);
    };
    return Float32Array.from({ length: bytes.byteLength / BLOCK_BYTES * BLOCK }, value);
  },
};

/** Returns whether `readAsFloats` can read tensors of the type. */
export function isReadAsFloats(type: TensorType): boolean {
  return DECODERS[type] !== undefined;
}

/**
 * Returns the values of a tensor of a type that `isReadAsFloats`. Throws GgufError for a value that is not a finite
 * number, or if the file has shrunk.
 */
export async function readAsFloats(file: GgufFile, info: TensorInfo): Promise<Float32Array> {
  const values = DECODERS[info.type]!(await readTensor(file, info));
  if (values.every(Number.isFinite)) return values;
  throw new GgufError("GGUF_DATA", "must have only finite numbers", {
    field: `tensor ${quote(info.name)} of ${quote(file.path)}`,
  });
}

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
