/** The formats that the GPU computes with. */
import type { TensorType } from "../../../../gguf/types.ts";
import { BF16, F16, F32 } from "./floats.ts";
import type { WeightFormat } from "./format.ts";
import { IQ4_NL, IQ4_XS } from "./lookup.ts";
import { MXFP4 } from "./mxfp4.ts";
import { Q1_0 } from "./q1_0.ts";
import { Q2_0 } from "./q2_0.ts";
import { Q2_K } from "./q2_k.ts";
import { Q3_K } from "./q3_k.ts";
import { Q4_0, Q4_1 } from "./q4_0.ts";
import { Q4_K, Q5_K } from "./q4_k.ts";
import { Q5_0, Q5_1 } from "./q5_0.ts";
import { Q6_K } from "./q6_k.ts";
import { Q8_0 } from "./q8_0.ts";

/** By type. The CPU alone computes with the other types. */
export const GPU_FORMATS = {
  F32,
  F16,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  BF16,
  MXFP4,
  Q1_0,
  Q2_0,
} as const satisfies Partial<Record<TensorType, WeightFormat>>;

export type GpuType = keyof typeof GPU_FORMATS;

export const GPU_TYPES: readonly GpuType[] = Object.keys(GPU_FORMATS) as GpuType[];

export function isGpuType(type: TensorType): type is GpuType {
  return Object.hasOwn(GPU_FORMATS, type);
}

/**
 * Returns the format of a type. Throws for a type that only the CPU computes with; `lowering.ts` refuses such
 * plans before.
 */
export function gpuFormat(type: TensorType): WeightFormat {
  if (!isGpuType(type)) throw new TypeError(`The GPU has no kernels for ${type}`);
  return GPU_FORMATS[type];
}
