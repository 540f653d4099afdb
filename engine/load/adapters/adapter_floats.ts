import { GgufError, quote } from "../../gguf/errors.ts";
import { readTensor } from "../../gguf/float_tensor.ts";
import type { GgufFile, TensorInfo, TensorType } from "../../gguf/types.ts";

/** Values and bytes of a Q8_0 block: an F16 scale, then the values. */
const BLOCK = 32;
const BLOCK_BYTES = 34;

/** The types that adapters are converted to. */
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

export function isAdapterType(type: TensorType): boolean {
  return DECODERS[type] !== undefined;
}

/** Returns a tensor's values. Throws GgufError for a value that is not a finite number, or if the file has shrunk. */
export async function readAdapterFloats(file: GgufFile, info: TensorInfo): Promise<Float32Array> {
  const values = DECODERS[info.type]!(await readTensor(file, info));
  if (values.every(Number.isFinite)) return values;
  throw new GgufError("GGUF_DATA", "must have only finite numbers", {
    field: `tensor ${quote(info.name)} of ${quote(file.path)}`,
  });
}
