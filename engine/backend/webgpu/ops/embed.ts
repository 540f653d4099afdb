import { cannotRun } from "../errors.ts";
import { embedKernel } from "../kernels/matmul.ts";
import type { LoweredOp, MatrixId, Slice } from "../program.ts";
import { type GpuKind, label, type PlanOpOf } from "./op.ts";

interface EmbedOp extends LoweredOp {
  readonly op: "embed";
  readonly rows: "step";
  readonly matrix: MatrixId;
  readonly y: Slice;
}

/** Looks up rows of the embedding by token id. Each shard of the matrix has its own tokens. */
export const EMBED: GpuKind<PlanOpOf<"embed">, EmbedOp> = {
  op: "embed",
  lower(op, to) {
    if (op.scale !== 1) throw cannotRun("its embedding is scaled");
    to.push<EmbedOp>({ op: "embed", rows: "step", matrix: to.matrix([op.weight]), y: to.make([op.out]) });
  },
  dispatches(op, w) {
    const { program, plan, weights, buffers } = w.context;
    const { tensors, columns } = program.matrices[op.matrix];
    const kernel = embedKernel(plan.tensors[tensors[0]].info.type, columns);
    return Promise.all(weights.matrices[op.matrix].map(async ({ first, rows, planes }) => {
      const uniforms = await w.uniforms([columns, rows, first, w.stride(op.y)]);
      const bindings = [uniforms, buffers.counts.step, buffers.rows, w.buffer(op.y), ...planes];
      return { label: label(op), rows: op.rows, kernels: [kernel], n: columns, bindings };
    }));
  },
};
