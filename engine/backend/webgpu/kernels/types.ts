import type { TensorType } from "../../../gguf/types.ts";
import type { Arithmetic } from "../../backend.ts";

/** Probed properties of a device that kernels depend on. */
export interface KernelDevice {
  /** `enable f16` gives correct numbers. */
  readonly f16: boolean;
}

/** How the result r of a matrix product is stored: y = r; y += r; y = silu(gate's r) * up's r. */
export type Epilogue = "store" | "add" | "swiglu";

export interface MatMulSpec {
  readonly type: TensorType;
  readonly arithmetic: Arithmetic;
  /** Columns of the matrix: the length of the rows of x. */
  readonly columns: number;
  readonly epilogue: Epilogue;
  /** Whether a vector is added to each row of y; only with "store". */
  readonly bias: boolean;
}

/** A shader and how to dispatch it. Kernels with equal keys are equal. */
export interface Kernel {
  readonly key: string;
  /** WGSL. */
  readonly code: string;
  readonly entryPoint: string;
  /** Values of the overrides in the code. */
  readonly constants: Readonly<Record<string, number>>;
  /** Largest number of rows of activations; Infinity for any number. */
  readonly maxRows: number;
  /**
   * Returns the workgroups for `n` matrix rows (with "swiglu": rows of the gate) and `m` rows of activations.
   * Their longest context has `context` tokens.
   */
  workgroups(n: number, m: number, context?: number): readonly [number, number, number];
  /**
   * Returns the approximate multiply-adds of one workgroup, for kernels that may take long. Times are
   * measured; this transfers them to steps of other sizes.
   */
  work?(size: { readonly step: number; readonly context: number }): number;
}

/**
 * The result of a sweep for an adapter, format and arithmetic. The tuning applies to products with one row of
 * activations.
 */
export interface Tuning {
  /** Matrix rows per eight lanes: 1, 2, 4 or 8. */
  readonly rows: number;
  /** Lanes of a workgroup. */
  readonly lanes: number;
}
