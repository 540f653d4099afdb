import { cannotRun } from "../errors.ts";
import { formsOf } from "../../../plan/plan.ts";
import { kernelOf } from "../kernels/kernel.ts";
import type { Kernel } from "../kernels/types.ts";
import type { LoweredOp, RowKind, Slice, VectorId } from "../program.ts";
import { float, type GpuKind, label, type PlanOpOf } from "./op.ts";
import { treeSum } from "./shape.ts";

const LANES = 256;

interface RmsNormOp extends LoweredOp {
  readonly op: "rms_norm";
  readonly rows: RowKind;
  readonly x: Slice;
  readonly y: Slice;
  readonly weight: VectorId;
  readonly columns: number;
  readonly eps: number;
  /** Whether the norm reads only the rows with logits requests. */
  readonly gather: boolean;
}

export const RMS_NORM: GpuKind<PlanOpOf<"rms_norm">, RmsNormOp> = {
  op: "rms_norm",
  lower(op, to) {
    if (op.weight === undefined || op.scale !== 1) {
      throw cannotRun("it has norms without weights, or scaled ones");
    }
    const [out] = formsOf(op.out);
    const [rows, { columns }] = [to.rowsOf(out), to.plan.buffers[out]];
    to.push<RmsNormOp>({
      op: "rms_norm",
      rows,
      x: to.slice(op.x),
      y: to.make(formsOf(op.out)),
      weight: to.vector([{ tensor: op.weight, length: columns }]),
      columns,
      eps: op.eps,
      gather: rows === "logits" && to.rowsOf(op.x) === "step",
    });
  },
  async dispatches(op, w) {
    const { weights, buffers } = w.context;
    const words = [op.columns, w.stride(op.x), op.x.offset, w.stride(op.y), op.y.offset, float(op.eps)];
    const bindings = [await w.uniforms(words), w.buffer(op.x), w.buffer(op.y), weights.vectors[op.weight]];
    if (op.gather) bindings.push(buffers.chosen);
    return [{
      label: label(op),
      rows: op.rows,
      kernels: [rmsNormKernel(op.gather)],
      n: op.columns,
      bindings,
    }];
  },
};

/**
 * Returns the kernel for y = x / rms(x) * weight, one workgroup per row. `gather`: it reads only rows with logits
 * requests.
 */
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
  return kernelOf(`rms_norm ${gather}`, code, (_n, m) => [m, 1, 1]);
}
