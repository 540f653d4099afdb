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
  IQ4_NL: { id: 20, elements: 32, bytes: 18, float: false },
  IQ4_XS: { id: 23, elements: 256, bytes: 136, float: false },
  BF16: { id: 30, elements: 1, bytes: 2, float: true },
  MXFP4: { id: 39, elements: 32, bytes: 17, float: false },
} as const;
