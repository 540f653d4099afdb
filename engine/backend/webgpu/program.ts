import type { TensorId } from "../../plan/plan.ts";

/**
 * A plan as the GPU runs it: a list of dispatches. Pure data, made without a device, so that it can be counted and
 * printed anywhere. Matrices of one type that read one x are stacked into one, gate and up too; the forms of a value
 * (f32, 8-bit) are one; the table of angles is made once, for all positions. No op is recorded that moves nothing.
 */
export interface Program {
  readonly matrices: readonly GpuMatrix[];
  readonly vectors: readonly GpuVector[];
  readonly buffers: readonly GpuBufferShape[];
  readonly ops: readonly LoweredOp[];
}

export type MatrixId = number;
export type VectorId = number;

/** Matrices of one type stacked by rows; or gate and up, which stay side by side in every shard. */
export interface GpuMatrix {
  readonly tensors: readonly TensorId[];
  readonly paired: boolean;
  readonly columns: number;
  /** Rows of y: of a pair, those of the gate. */
  readonly rows: number;
}

/** Vectors of f32, end to end; `undefined` stands for zeros. */
export interface GpuVector {
  readonly parts: readonly { readonly tensor?: TensorId; readonly length: number }[];
}

export type RowKind = "step" | "logits";
/** What a dispatch is over: rows, the sequences that they belong to, or the spans that attention cuts them into. */
export type DispatchKind = RowKind | "sequences" | "singles" | "tiles";

/** f32 rows; `stride` floats from one to the next. */
export interface GpuBufferShape {
  readonly rows: RowKind;
  readonly stride: number;
}

/** Columns of a buffer. */
export interface Slice {
  readonly buffer: number;
  readonly offset: number;
}

/** What all of the GPU's ops have. */
export interface LoweredOp {
  readonly op: string;
  readonly rows: DispatchKind;
  /** The model's layer that it belongs to. */
  readonly layer?: number;
}

export interface HeadCounts {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** In the queries' rows each head is followed by a gate as wide. */
  readonly gated: boolean;
}
