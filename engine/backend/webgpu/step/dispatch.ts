import type { Kernel } from "../kernels/types.ts";
import type { DispatchKind } from "../program.ts";

/** One kernel over fixed buffers; how many rows it takes is said when it is recorded. */
export interface Dispatch {
  /** For profiles and errors, such as "3 matmul attn_q". */
  readonly label: string;
  readonly rows: DispatchKind;
  /** For growing numbers of rows. */
  readonly kernels: readonly Kernel[];
  /** What the kernel's workgroups are counted by, besides rows. */
  readonly n: number;
  readonly bindings: readonly (GPUBuffer | GPUBufferBinding)[];
  /** Bytes of weights that it reads; by default none. */
  readonly bytes?: number;
  /** Steps that it is for; by default all. */
  readonly when?: (size: StepSize) => boolean;
}

/** What one dispatch took, by the GPU's own clock. */
export interface DispatchTime {
  readonly label: string;
  readonly ms: number;
  /** Of weights that it read. */
  readonly bytes: number;
}

/** What one submit took, by the GPU's own clock. */
export interface SubmitTime {
  readonly ms: number;
  /** What it was expected to take. */
  readonly expected: number;
  /** Keys of its kernels. */
  readonly kernels: readonly string[];
}

/** What a step took. */
export interface StepProfile {
  /** This thread's time to record and submit it. */
  readonly recordMs: number;
  readonly dispatches: readonly DispatchTime[];
}

/** Rows of a step, its sequences, spans of attention, and the tokens of the longest context. */
export type StepSize = Readonly<Record<DispatchKind | "context", number>>;

/** Whether a step has the dispatch. */
export function isFor({ rows, when }: Dispatch, size: StepSize): boolean {
  return size[rows] > 0 && when?.(size) !== false;
}
