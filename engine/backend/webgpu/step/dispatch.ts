import type { Kernel } from "../kernels/types.ts";
import type { DispatchKind } from "../program.ts";

/** One kernel with fixed buffers. The number of rows is chosen when it is recorded. */
export interface Dispatch {
  /** For profiles and errors, such as "3 matmul attn_q". */
  readonly label: string;
  readonly rows: DispatchKind;
  /** Kernels of the same op for more and more rows, in this order. */
  readonly kernels: readonly Kernel[];
  /** The size that determines the number of workgroups, together with the rows. */
  readonly n: number;
  readonly bindings: readonly (GPUBuffer | GPUBufferBinding)[];
  /** Bytes of weights that it reads; none by default. */
  readonly bytes?: number;
  /** Whether a step of this size needs it; always by default. */
  readonly when?: (size: StepSize) => boolean;
}

/** Time of one dispatch by the GPU's own clock. */
export interface DispatchTime {
  readonly label: string;
  readonly ms: number;
  /** Bytes of weights that it read. */
  readonly bytes: number;
}

/** Time of one submit by the GPU's own clock. */
export interface SubmitTime {
  readonly ms: number;
  /** The time that was expected. */
  readonly expected: number;
  /** Keys of its kernels. */
  readonly kernels: readonly string[];
}

/** Time of a step. */
export interface StepProfile {
  /** The CPU's time to record and submit it. */
  readonly recordMs: number;
  readonly dispatches: readonly DispatchTime[];
}

/** Numbers of rows, sequences and attention spans in a step, and tokens of the longest context. */
export type StepSize = Readonly<Record<DispatchKind | "context", number>>;

/** Returns whether a step needs the dispatch. */
export function isFor({ rows, when }: Dispatch, size: StepSize): boolean {
  return size[rows] > 0 && when?.(size) !== false;
}
