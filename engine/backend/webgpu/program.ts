import type { TensorId } from "../../plan/plan.ts";

/**
 * A plan as the GPU runs it: a list of ops that become dispatches. It is pure data, made without a device, so
 * it can be counted and printed anywhere.
 *
 * Matrices of one type that read the same x are stacked, and so are gate and up. The f32 and 8-bit forms of a
 * value share one buffer. The table of rope angles is made once for all positions. Ops that move no data are
 * dropped.
 */
export interface Program {
  readonly matrices: readonly GpuMatrix[];
  readonly vectors: readonly GpuVector[];
  readonly buffers: readonly GpuBufferShape[];
  readonly ops: readonly LoweredOp[];
}

export type MatrixId = number;
export type VectorId = number;

/** Matrices of one type stacked by rows, or a gate and an up matrix that stay side by side in every shard. */
export interface GpuMatrix {
  readonly tensors: readonly TensorId[];
  readonly paired: boolean;
  readonly columns: number;
  /** Number of rows of y; for a gate and up pair, rows of the gate. */
  readonly rows: number;
}

/** Concatenated f32 vectors; `undefined` stands for zeros. */
export interface GpuVector {
  readonly parts: readonly { readonly tensor?: TensorId; readonly length: number }[];
}

export type RowKind = "step" | "logits";
/** The items of a dispatch: rows, sequences, or the spans into which attention groups rows. */
export type DispatchKind = RowKind | "sequences" | "singles" | "tiles";

/** A buffer with rows of f32, `stride` floats apart. */
export interface GpuBufferShape {
  readonly rows: RowKind;
  readonly stride: number;
}

/** The columns of a buffer from `offset` on. */
export interface Slice {
  readonly buffer: number;
  readonly offset: number;
}

/** Properties that all GPU ops have in common. */
export interface LoweredOp {
  readonly op: string;
  readonly rows: DispatchKind;
  /** Number of the model's layer that the op belongs to. */
  readonly layer?: number;
}

export interface HeadCounts {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Whether each head in the query rows is followed by a gate of the same width. */
  readonly gated: boolean;
}
