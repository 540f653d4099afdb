import type { TensorType } from "../../../gguf/types.ts";
import type { Arithmetic } from "../../backend.ts";

/** What the start-up probes found about a device, as far as kernels depend on it. */
export interface KernelDevice {
  /** `enable f16` gives correct numbers. */
  readonly f16: boolean;
}

/** What a matrix product's results become: y = r; y += r; y = silu(gate's r) * up's r. */
export type Epilogue = "store" | "add" | "swiglu";

export interface MatMulSpec {
  readonly type: TensorType;
  readonly arithmetic: Arithmetic;
  /** Of the matrix: the length of the rows of x. */
  readonly columns: number;
  readonly epilogue: Epilogue;
  /** Adds a vector to each row of y; only with "store". */
  readonly bias: boolean;
}

/** A shader and how it is dispatched. Kernels of one key are the same. */
export interface Kernel {
  readonly key: string;
  /** WGSL. */
  readonly code: string;
  readonly entryPoint: string;
  /** Values of the code's overrides. */
  readonly constants: Readonly<Record<string, number>>;
  /** Most rows of activations that it is for; Infinity for any number. */
  readonly maxRows: number;
  /**
   * Workgroups for `n` rows of the matrix (with "swiglu": of the gate) and `m` rows of activations, of which the longest
   * context has `context` tokens.
   */
  workgroups(n: number, m: number, context?: number): readonly [number, number, number];
  /**
   * Multiply-adds of one workgroup, about, in a step of so many rows; only of kernels that may take long. What they take is measured:
   * this is for steps of other sizes.
   */
  work?(size: { readonly step: number; readonly context: number }): number;
}

/** What a sweep chooses by adapter, format and arithmetic, for products of one row of activations. */
export interface Tuning {
  /** Matrix rows of eight lanes: 1, 2, 4 or 8. */
  readonly rows: number;
  /** Of a workgroup. */
  readonly lanes: number;
}
