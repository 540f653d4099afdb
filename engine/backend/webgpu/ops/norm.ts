import type { Kernel } from "../kernels/types.ts";
import { treeSum } from "./shape.ts";

const LANES = 256;

/** y = x / rms(x) * weight, a workgroup a row; `gather` reads only the rows that want logits. */
export function rmsNormKernel(gather: boolean): Kernel {
  const code = `
struct Op { columns: u32, x_stride: u32, x_offset: u32, y_stride: u32, y_offset: u32, eps: f32, a: u32, b: u32 }
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
${gather ? "@group(0) @binding(4) var<storage, read> chosen: array<u32>;" : ""}
${treeSum(LANES)}

@compute @workgroup_size(${LANES})
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = ${gather ? "chosen[group.x]" : "group.x"};
  let from_x = row * op.x_stride + op.x_offset;
  let to = group.x * op.y_stride + op.y_offset;
  var sum = 0.0;
  for (var i = lane; i < op.columns; i += ${LANES}u) {
    let value = x[from_x + i];
    sum += value * value;
  }
  let factor = 1.0 / sqrt(tree_sum(lane, sum) / f32(op.columns) + op.eps);
  for (var i = lane; i < op.columns; i += ${LANES}u) {
    y[to + i] = x[from_x + i] * factor * weight[i];
  }
}`;
  return {
    key: `rms_norm ${gather}`,
    code,
    entryPoint: "rms_norm",
    constants: {},
    maxRows: Infinity,
    workgroups: (_n, m) => [m, 1, 1],
  };
}

/** y = silu(gate) * up, where gate and up are of two types and so come from two products. */
export function siluMultiplyKernel(): Kernel {
  const code = `
struct Op { columns: u32, x_stride: u32, x_offset: u32, y_stride: u32, y_offset: u32, a: u32, b: u32, c: u32 }
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn silu_multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let column = group.x * 64u + lane;
  if (column >= op.columns) { return; }
  let at = group.y * op.x_stride + op.x_offset + column;
  let gate = x[at];
  y[group.y * op.y_stride + op.y_offset + column] = gate / (1.0 + exp(-gate)) * x[at + op.columns];
}`;
  return {
    key: "silu_multiply",
    code,
    entryPoint: "silu_multiply",
    constants: {},
    maxRows: Infinity,
    workgroups: (n, m) => [Math.ceil(n / 64), m, 1],
  };
}
