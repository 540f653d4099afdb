/** Kernels for matrix products and the embedding, for every format and arithmetic. */
import { byteLengthOf } from "../../../gguf/tensor_types.ts";
import type { TensorType } from "../../../gguf/types.ts";
import type { Arithmetic } from "../../backend.ts";
import { NATURAL } from "./formats/format.ts";
import { gpuFormat } from "./formats/registry.ts";
import { product } from "./product.ts";
import { productTile } from "./product_tile.ts";
import { weights } from "./shader.ts";
import { kernelOf } from "./kernel.ts";
import type { Kernel, KernelDevice, MatMulSpec, Tuning } from "./types.ts";
import { decoded, loadPair } from "./words.ts";

/**
 * Kernels for few activation rows: rows per workgroup, and the largest step that uses each. For larger steps, the tile
 * kernel fills the GPU and loads less.
 */
const FEW: readonly { readonly tokens: number; readonly maxRows: number }[] = [
  { tokens: 1, maxRows: 1 },
  { tokens: 4, maxRows: 4 },
  { tokens: 16, maxRows: 64 },
];

/** Tuning of a matrix product if no tuning sweep has stored one. */
export const DEFAULT_TUNING: Tuning = { rows: 1, lanes: 256 };
/** Tuning with two matrix rows per workgroup instead of one, so activations are loaded half as often. */
const HALF_AS_MANY: Tuning = { rows: 2, lanes: 256 };
/** Number of matrix rows from which half as many workgroups still fill a GPU. */
const TALL_ROWS = 16_384;
/**
 * Bytes per weight below which a workgroup takes twice the matrix rows: activations would exceed a fifth of its loads.
 * Lanes of a gate and up pair have two rows anyway.
 */
const THIN_BYTES = 0.5;

/** Returns the tuning for a matrix with `rows` rows if no tuning sweep has stored one. */
export function defaultTuning(
  rows: number,
  { type, epilogue }: Pick<MatMulSpec, "type" | "epilogue">,
): Tuning {
  const thin = byteLengthOf(type, 1) < THIN_BYTES && epilogue !== "swiglu";
  return thin || rows >= TALL_ROWS ? HALF_AS_MANY : DEFAULT_TUNING;
}

/** Tuning for products of several activation rows. Gate and up pairs take half the matrix rows. */
const SEVERAL: Tuning = { rows: 2, lanes: 256 };

/**
 * Returns a product's kernels, for growing numbers of activation rows. Use the first with `maxRows` large enough. All
 * sum a row's products in the same order. Throws if the device lacks what the arithmetic needs.
 */
export function matMulKernels(
  spec: MatMulSpec,
  device: KernelDevice,
  tuning: Tuning = DEFAULT_TUNING,
): Kernel[] {
  const missing = missingFor(spec.arithmetic, device);
  if (missing) {
    throw new Error(
      `Cannot compute with arithmetic "${spec.arithmetic}": the device has no ${missing}; use "f32"`,
    );
  }
  const several = { ...SEVERAL, rows: spec.epilogue === "swiglu" ? 1 : SEVERAL.rows };
  const few = FEW.map(({ tokens, maxRows }) =>
    product(spec, tokens === 1 ? tuning : several, tokens, maxRows)
  );
  return [...few, productTile(spec)];
}

/** Returns the feature that a device lacks for an arithmetic; undefined if it lacks none. */
export function missingFor(arithmetic: Arithmetic, { f16 }: KernelDevice): string | undefined {
  return arithmetic === "f16" && !f16 ? "working 16-bit floats" : undefined;
}

/** Returns the kernels for steps of at most `rows` rows. Others are not compiled, because each can take seconds. */
export function neededFor(kernels: readonly Kernel[], rows: number): Kernel[] {
  return kernels.slice(0, 1 + kernels.findIndex(({ maxRows }) => rows <= maxRows));
}

/**
 * Returns the kernel that copies matrix rows, as f32, by token id. The kernel skips tokens whose rows are in other
 * shards.
 *
 * Bindings: 0 {columns, rows of this shard, first row, stride of y}; 1 {rows of y}; 2 token ids in x; 3 y; 4
 * the planes.
 */
export function embedKernel(type: TensorType, columns: number): Kernel {
  const format = gpuFormat(type);
  const { order = NATURAL, offset, setup } = format.decoder("f32");
  const scaled = (c: number) => {
    const at = order.indexOf(c);
    const half = format.sub === 32 ? "" : c < 16 ? ".x" : ".y";
    const value = `w.q[${at >> 2}].${"xyzw"[at & 3]} * w.scale${half}`;
    return offset ? `${value} + w.offset${half}` : value;
  };
  const stores = Array.from({ length: 32 }, (_, c) => {
    const statement = `y[at + ${c}u] = ${scaled(c)};`;
    return columns % 32 === 0 ? statement : `if (32u * b + ${c}u < ${columns}u) { ${statement} }`;
  });
  const code = `struct Op { columns: u32, n: u32, first: u32, y_stride: u32, unused_0: vec4<u32> }
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<uniform> step: vec4<u32>;
@group(0) @binding(2) var<storage, read> rows: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
${weights(type, columns, "f32")}
const SIZE = 32u;
@compute @workgroup_size(32)
fn embed(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane_in_group: u32) {
  ${setup ?? ""}
  let token = rows[group.x].x;
  if (group.x >= step.x || token < op.first || token - op.first >= op.n) { return; }
  for (var b = lane_in_group; b < ${Math.ceil(columns / 32)}u; b += SIZE) {
    let row = token - op.first;
    ${loadPair(format, "words", "row", "b >> 1u")}
    let w = ${decoded(format, "b", "load_own(row, b)", "words")};
    let at = group.x * op.y_stride + 32u * b;
    ${stores.join("\n    ")}
  }
}
`;
  return kernelOf(`embed ${type} ${columns}`, code, (_n, m) => [m, 1, 1]);
}
