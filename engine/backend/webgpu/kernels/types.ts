import type { TensorType } from "../../../gguf/types.ts";
import type { Arithmetic } from "../../backend.ts";

/** Probed properties of a device that kernels depend on. */
export interface KernelDevice {
  /** Whether `enable f16` computes correct numbers. */
  readonly f16: boolean;
}

/** How a matrix product stores its result r: y = r; y += r; y = silu(gate's r) * up's r. */
export type Epilogue = "store" | "add" | "swiglu";

export interface MatMulSpec {
  readonly type: TensorType;
  readonly arithmetic: Arithmetic;
  /** Number of matrix columns: the length of the rows of x. */
  readonly columns: number;
  readonly epilogue: Epilogue;
  /** Whether a vector is added to each row of y; only with "store". */
  readonly bias: boolean;
}

/** A shader and how to dispatch it. Kernels with equal keys are equal. */
export interface Kernel {
  readonly key: string;
  /** Source text in WGSL. */
  readonly code: string;
  readonly entryPoint: string;
  /** Values of the WGSL overrides in the code. */
  readonly constants: Readonly<Record<string, number>>;
  /** Largest number of activation rows for the kernel; Infinity for any number. */
  readonly maxRows: number;
  /**
   * Returns the grid of workgroups for `n` matrix rows (with "swiglu": rows of the gate), `m` activation rows and a
   * longest context of `context` tokens.
   */
  workgroups(n: number, m: number, context?: number): readonly [number, number, number];
  /**
   * Returns the approximate multiply-adds of one workgroup, for kernels that may take long. It scales measured times to
   * steps of other sizes.
   */
  work?(size: { readonly step: number; readonly context: number }): number;
}

/** The result of a sweep for an adapter, format and arithmetic. It applies to products with one row of activations. */
export interface Tuning {
  /** Number of matrix rows per eight lanes: 1, 2, 4 or 8. */
  readonly rows: number;
  /** Number of lanes in a workgroup. */
  readonly lanes: number;
}
