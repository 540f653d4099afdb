import { dequantize } from "../../testing/synth/weights.ts";
import type { GgufFile, TensorInfo } from "../../engine/gguf/types.ts";

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT;

/** Returns the number of weights in a file. A copy in F32 takes four bytes for each. */
export function weightsOf({ tensors }: GgufFile): number {
  return [...tensors.values()].reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
}

/**
 * Writes every tensor's values as F32 to `path`, one after the other. The returned file has the original's
 * metadata and reads its tensors from there. So the CPU computes with the original's weights and rounds no
 * activations.
 */
export async function floatCopy(file: GgufFile, path: string): Promise<GgufFile> {
  using target = await Deno.open(path, { write: true, truncate: true });
  const tensors = new Map<string, TensorInfo>();
  let offset = 0;
  for (const [name, info] of file.tensors) {
    const bytes = await readTensor(info);
    const count = info.shape.reduce((a, b) => a * b, 1);
    const floats = info.type === "F32" ? bytes : new Uint8Array(
      Float32Array.from(dequantize(info.type, bytes, count)).buffer,
    );
    for (let at = 0; at < floats.length;) at += await target.write(floats.subarray(at));
    tensors.set(name, { ...info, path, type: "F32", offset, byteLength: count * FLOAT_BYTES });
    offset += floats.length;
  }
  return { ...file, path, fileSize: offset, tensors };
}

async function readTensor(info: TensorInfo): Promise<Uint8Array<ArrayBuffer>> {
  using source = await Deno.open(info.path);
  const bytes = new Uint8Array(info.byteLength);
  await source.seek(info.offset, Deno.SeekMode.Start);
  for (let at = 0; at < bytes.length;) {
    const n = await source.read(bytes.subarray(at));
    if (n === null) throw new Error(`Cannot read tensor "${info.name}": the file has become shorter`);
    at += n;
  }
  return bytes;
}
