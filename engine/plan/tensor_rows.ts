import type { TensorInfo } from "../gguf/types.ts";

/** One of several matrices stacked in a tensor: its rows start at `first`, of `of` rows in total. */
export interface RowsOf {
  readonly name: string;
  readonly first: number;
  readonly of: number;
  /** The tensor has a third dimension, and all matrices have the same number of rows. */
  readonly stacked?: boolean;
}

/** Suffix in the name of a tensor's part. */
const PART = /\[\d+:\d+\]$/;

/** Returns the file's name for a plan's tensor: the whole tensor's name if the plan's tensor is a part of it. */
export function wholeName(name: string): string {
  return name.replace(PART, "");
}

/**
 * Returns consecutive rows, or values, of a tensor as a tensor of its own. The rows are contiguous in the file.
 */
export function rowsOf(whole: TensorInfo, { first, of }: RowsOf, shape: readonly number[]): TensorInfo {
  const rows = shape.at(-1)!;
  const rowBytes = whole.byteLength / of;
  return {
    ...whole,
    name: `${whole.name}[${first}:${first + rows}]`,
    shape,
    offset: whole.offset + first * rowBytes,
    byteLength: rows * rowBytes,
  };
}
