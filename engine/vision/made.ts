/** Matrices that are made of a tensor's values in another order. */
import { GgufError, quote } from "../gguf/errors.ts";
import { isReadAsFloats, readAsFloats } from "../gguf/float_tensor.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";

/** The order of a matrix's values in a file, if it is not the order of products. */
export type Made =
  /** With rows and columns swapped: the tensor's shape. */
  | { readonly transposed: readonly [columns: number, rows: number] }
  /** With the `count` columns of each channel side by side, instead of the columns of each group. */
  | { readonly grouped: readonly [channels: number, count: number] };

/** Returns the file with matrices in the order of products, in F32. Throws GgufError. */
export function withMade(file: GgufFile, made: Readonly<Record<string, Made>>): GgufFile {
  const tensors = new Map(file.tensors);
  for (const [name, how] of Object.entries(made)) {
    const info = tensors.get(name);
    if (!info) continue; // the plan refuses a missing tensor
    const fail = (detail: string) => new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(name)}` });
    if (!isReadAsFloats(info.type)) throw fail(`must be of type F32, F16, BF16 or Q8_0 (got ${info.type})`);
    const stored = "transposed" in how ? how.transposed : [how.grouped[0] * how.grouped[1], info.shape[1]];
    if (info.shape.join() !== stored.join()) {
      throw fail(`must have shape ${stored.join(" x ")} (got ${info.shape.join(" x ")})`);
    }
    tensors.set(name, madeOf(file, info, how));
  }
  return { ...file, tensors };
}

function madeOf(file: GgufFile, info: TensorInfo, how: Made): TensorInfo {
  const [columns, rows] = "transposed" in how ? info.shape.toReversed() : info.shape;
  const from = "transposed" in how
    ? (row: number, column: number) => column * rows + row
    : (row: number, column: number) => {
      const [channels, count] = how.grouped;
      return row * columns + column % channels * count + Math.floor(column / channels);
    };
  return {
    ...info,
    type: "F32",
    shape: [columns, rows],
    byteLength: 4 * columns * rows,
    made: async () => {
      const values = await readAsFloats(file, info);
      const matrix = new Float32Array(columns * rows);
      for (let i = 0; i < matrix.length; i++) matrix[i] = values[from(Math.floor(i / columns), i % columns)];
      return new Uint8Array(matrix.buffer);
    },
  };
}
