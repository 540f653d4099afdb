import type { Kernel } from "../kernels/types.ts";
import type { DispatchKind } from "../program.ts";

/** A GPU kernel with fixed buffers. The number of rows is chosen when the dispatch is recorded. */
export interface Dispatch {
  /** The dispatch's name in profiles and errors, such as "3 matmul attn_q". */
  readonly label: string;
  readonly rows: DispatchKind;
  /** Kernels of one op, in ascending order of their maximum rows. */
  readonly kernels: readonly Kernel[];
  /** The size that, with the number of rows, determines the number of workgroups. */
  readonly n: number;
  readonly bindings: readonly (GPUBuffer | GPUBufferBinding)[];
  /** Bytes of weights that the dispatch reads; none by default. */
  readonly bytes?: number;
  /** Returns whether a step of this size needs the dispatch; always by default. */
  readonly when?: (size: StepSize) => boolean;
}

/** Time of one dispatch by the GPU's own clock. */
export interface DispatchTime {
  readonly label: string;
  readonly ms: number;
  /** Bytes of weights that the dispatch read. */
  readonly bytes: number;
}

/** Time of one submit by the GPU's own clock. */
export interface SubmitTime {
  readonly ms: number;
  /** The expected milliseconds of the submit. */
  readonly expected: number;
  /** Keys of the kernels in the submit. */
  readonly kernels: readonly string[];
}

/** Times of a step and its dispatches. */
export interface StepProfile {
  /** The CPU's milliseconds to record and submit the step. */
  readonly recordMs: number;
  readonly dispatches: readonly DispatchTime[];
}

/** Numbers of rows, sequences and attention spans in a step, and tokens of the longest context. */
export type StepSize = Readonly<Record<DispatchKind | "context", number>>;

/** Returns whether a step needs the dispatch. */
export function isFor({ rows, when }: Dispatch, size: StepSize): boolean {
  return size[rows] > 0 && when?.(size) !== false;
}
