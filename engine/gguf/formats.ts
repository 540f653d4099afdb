// Generated from rust-kernels/src/formats/ by `deno task bindings`; do not edit.

/**
 * The tensor types that compy computes with: ggml's type id, elements and bytes of a block in the file, and
 * whether the kernels multiply by f32 activations instead of 8-bit blocks.
 */
export const FORMATS = {
  F32: { id: 0, elements: 1, bytes: 4, float: true },
  F16: { id: 1, elements: 1, bytes: 2, float: true },
  Q4_0: { id: 2, elements: 32, bytes: 18, float: false },
  Q4_1: { id: 3, elements: 32, bytes: 20, float: false },
  Q5_0: { id: 6, elements: 32, bytes: 22, float: false },
  Q5_1: { id: 7, elements: 32, bytes: 24, float: false },
  Q8_0: { id: 8, elements: 32, bytes: 34, float: false },
  Q2_K: { id: 10, elements: 256, bytes: 84, float: false },
  Q3_K: { id: 11, elements: 256, bytes: 110, float: false },
  Q4_K: { id: 12, elements: 256, bytes: 144, float: false },
  Q5_K: { id: 13, elements: 256, bytes: 176, float: false },
  Q6_K: { id: 14, elements: 256, bytes: 210, float: false },
  IQ2_XXS: { id: 16, elements: 256, bytes: 66, float: false },
  IQ2_XS: { id: 17, elements: 256, bytes: 74, float: false },
  IQ3_XXS: { id: 18, elements: 256, bytes: 98, float: false },
  IQ1_S: { id: 19, elements: 256, bytes: 50, float: false },
  IQ4_NL: { id: 20, elements: 32, bytes: 18, float: false },
  IQ3_S: { id: 21, elements: 256, bytes: 110, float: false },
  IQ2_S: { id: 22, elements: 256, bytes: 82, float: false },
  IQ4_XS: { id: 23, elements: 256, bytes: 136, float: false },
  IQ1_M: { id: 29, elements: 256, bytes: 56, float: false },
  BF16: { id: 30, elements: 1, bytes: 2, float: true },
  TQ1_0: { id: 34, elements: 256, bytes: 54, float: false },
  TQ2_0: { id: 35, elements: 256, bytes: 66, float: false },
  MXFP4: { id: 39, elements: 32, bytes: 17, float: false },
  NVFP4: { id: 40, elements: 64, bytes: 36, float: false },
  Q1_0: { id: 41, elements: 128, bytes: 18, float: false },
  Q2_0: { id: 42, elements: 64, bytes: 18, float: false },
} as const;
