/** Layout of matrices on the GPU: a matrix consists of its format's planes, and a plane holds rows of aligned words. */
import { layoutOf } from "../../../gguf/tensor_types.ts";
import type { TensorType } from "../../../gguf/types.ts";
import { placeOf, rowBytesOf } from "./formats/format.ts";
import { gpuFormat } from "./formats/registry.ts";

/** Returns the bytes per matrix row in each plane, multiples of 4. Row r starts at r times these bytes. */
export function planeRowBytes(type: TensorType, columns: number): number[] {
  return gpuFormat(type).planes.map((plane) => rowBytesOf(plane, columns));
}

/**
 * Returns the row and column of the first block whose scale is NaN. Only some formats have a code for NaN.
 */
export function findNan(type: TensorType, bytes: Uint8Array, columns: number): [number, number] | undefined {
  const { isNan } = gpuFormat(type);
  if (!isNan) return undefined;
  const { elements: blockColumns, bytes: blockBytes } = layoutOf(type);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    if (!isNan(bytes, at)) continue;
    const column = at / blockBytes * blockColumns;
    return [Math.floor(column / columns), column % columns];
  }
  return undefined;
}

/**
 * Packs whole rows of a file's matrix into planes. `bytes` holds `rows` rows of `columns` columns, which must
 * be whole blocks. Nothing is rounded: decoding gives the file's values.
 */
export function packPlanes(
  type: TensorType,
  bytes: Uint8Array,
  rows: number,
  columns: number,
): Uint8Array<ArrayBuffer>[] {
  const { planes, pack } = gpuFormat(type);
  const { elements: blockColumns, bytes: blockBytes } = layoutOf(type);
  const rowBytes = planeRowBytes(type, columns);
  const out = rowBytes.map((n) => new Uint8Array(n * rows));
  if (blockColumns === 1) {
    const length = columns * blockBytes;
    for (let r = 0; r < rows; r++) {
      out[0].set(bytes.subarray(r * length, (r + 1) * length), r * rowBytes[0]);
    }
    return out;
  }
  const blocks = columns / blockColumns;
  const starts = planes.map((plane) =>
    Uint32Array.from({ length: blocks }, (_, block) => placeOf(plane, block * blockColumns))
  );
  const places = planes.map(() => 0);
  let at = 0;
  for (let r = 0; r < rows; r++) {
    for (let block = 0; block < blocks; block++) {
      for (let p = 0; p < planes.length; p++) places[p] = r * rowBytes[p] + starts[p][block];
      pack(bytes, at, out, places);
      at += blockBytes;
    }
  }
  return out;
}
