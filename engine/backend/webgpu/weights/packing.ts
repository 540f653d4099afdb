import type { TensorType } from "../../../gguf/types.ts";
import { findNan, packPlanes } from "../kernels/planes.ts";

/** A request to pack whole rows of a matrix in the file. */
export interface PackRequest {
  readonly type: TensorType;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly rows: number;
  readonly columns: number;
}

export interface PackReply {
  /** The packed planes in the GPU's layout; empty if a scale is NaN. */
  readonly planes: readonly Uint8Array<ArrayBuffer>[];
  /** Row and column of the first NaN scale. */
  readonly nan?: readonly [number, number];
}

export function pack({ type, bytes, rows, columns }: PackRequest): PackReply {
  const nan = findNan(type, bytes, columns);
  return nan ? { planes: [], nan } : { planes: packPlanes(type, bytes, rows, columns) };
}
