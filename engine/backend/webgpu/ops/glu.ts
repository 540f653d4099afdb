import { cannotRun } from "../errors.ts";
import { formsOf } from "../../../plan/plan.ts";
import { kernelOf } from "../kernels/kernel.ts";
import type { Kernel } from "../kernels/types.ts";
import type { LoweredOp, Slice } from "../program.ts";
import type { MatMulOp } from "./matmul.ts";
import { type GpuKind, label, type PlanOpOf } from "./op.ts";

/** SwiGLU: one product if gate and up have the same type; otherwise two products, then the activation. */
export const GLU: GpuKind<PlanOpOf<"glu">, never> = {
  op: "glu",
  lower(op, to) {
    if (op.activation !== "silu" || op.limit !== 0 || op.gateBias !== undefined || op.upBias !== undefined) {
      const bounded = op.limit === 0 ? "biases" : "bounds";
      const found = op.activation === "silu" ? bounded : `the activation "${op.activation}"`;
      throw cannotRun(`it has no "glu" with ${found}`);
    }
    if (op.gate === op.up) throw cannotRun('it has no "glu" of one tensor');
    const x = to.sliceOf(op.x);
    const rows = "step";
    const [gate, up] = [op.gate, op.up].map((id) => to.plan.tensors[id]);
    if (gate.info.type === up.info.type) {
      const matrix = to.matrix([op.gate, op.up], true);
      to.push<MatMulOp>({ op: "matmul", rows, matrix, x, y: to.make(formsOf(op.out)), epilogue: "swiglu" });
      return;
    }
    const both = to.buffer(rows, gate.rows + up.rows);
    for (const [offset, weight] of [[0, op.gate], [gate.rows, op.up]]) {
      const y = { buffer: both, offset };
      to.push<MatMulOp>({ op: "matmul", rows, matrix: to.matrix([weight]), x, y, epilogue: "store" });
    }
    const y = to.make(formsOf(op.out));
    to.push<SiluMultiplyOp>({
      op: "silu_multiply",
      rows,
      x: { buffer: both, offset: 0 },
      y,
      columns: gate.rows,
    });
    to.freeBuffer(both);
  },
};

interface SiluMultiplyOp extends LoweredOp {
  readonly op: "silu_multiply";
  readonly rows: "step";
  readonly x: Slice;
  readonly y: Slice;
  readonly columns: number;
}

export const SILU_MULTIPLY: GpuKind<never, SiluMultiplyOp> = {
  op: "silu_multiply",
  async dispatches(op, w) {
    const words = [op.columns, w.stride(op.x), op.x.offset, w.stride(op.y), op.y.offset];
    const bindings = [await w.uniforms(words), w.buffer(op.x), w.buffer(op.y)];
    return [{ label: label(op), rows: op.rows, kernels: [siluMultiplyKernel()], n: op.columns, bindings }];
  },
};

/** Returns the kernel for y = silu(gate) * up, where gate and up have different types and come from two products. */
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
  return kernelOf("silu_multiply", code, (n, m) => [Math.ceil(n / 64), m, 1]);
}
