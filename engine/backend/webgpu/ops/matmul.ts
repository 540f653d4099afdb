import { cannotRun } from "../errors.ts";
import { defaultTuning, matMulKernels, neededFor } from "../kernels/matmul.ts";
import { tuningKey } from "../tuning/tuning.ts";
import type { Epilogue } from "../kernels/types.ts";
import type { ProgramBuilder } from "../program_builder.ts";
import type { LoweredOp, MatrixId, RowKind, Slice, VectorId } from "../program.ts";
import type { Dispatch } from "../step/dispatch.ts";
import { type GpuKind, label, type PlanOpOf } from "./op.ts";

export interface MatMulOp extends LoweredOp {
  readonly op: "matmul";
  readonly rows: RowKind;
  readonly matrix: MatrixId;
  readonly x: Slice;
  readonly y: Slice;
  readonly epilogue: Epilogue;
  readonly bias?: VectorId;
}

/** A matrix product, one dispatch per shard. New outputs are adjacent in one buffer. */
export const MATMUL: GpuKind<PlanOpOf<"matmul">, MatMulOp> = {
  op: "matmul",
  lower(op, to) {
    if (op.parts.some(({ add }) => add !== undefined && add !== 1)) {
      throw cannotRun("its residuals have a multiplier");
    }
    const x = to.sliceOf(op.x);
    const made = op.parts.filter((part) => part.add === undefined);
    if (made.length > 0) to.make(made.map((part) => part.out), true);
    for (let first = 0; first < op.parts.length;) {
      const parts = stackable(op.parts.slice(first), to);
      lowerStack(parts, x, to);
      first += parts.length;
    }
  },
  dispatches(op, w) {
    const { program, plan, weights, buffers, arithmetic, tunings, kernels: device } = w.context;
    const { tensors, columns, rows: height } = program.matrices[op.matrix];
    const { type, name } = plan.tensors[tensors[0]].info;
    const bias = op.bias !== undefined;
    const spec = { type, arithmetic, columns, epilogue: op.epilogue, bias };
    const tuning = tunings.get(tuningKey(type, arithmetic)) ?? defaultTuning(height, spec);
    const kernels = neededFor(matMulKernels(spec, device, tuning), buffers.most[op.rows]);
    return Promise.all(weights.matrices[op.matrix].map(async ({ first, rows, planes }) => {
      const words = [columns, rows, w.stride(op.x), w.stride(op.y), op.y.offset + first, first];
      const bindings: Dispatch["bindings"][number][] = [
        await w.uniforms(words),
        buffers.counts[op.rows],
        w.buffer(op.x),
        w.buffer(op.y),
        ...planes,
      ];
      if (bias) bindings.push(weights.vectors[op.bias!]);
      const bytes = planes.reduce((sum, plane) => sum + plane.size, 0);
      return { label: `${label(op)} ${name}`, rows: op.rows, kernels, n: rows, bindings, bytes };
    }));
  },
};

type Part = PlanOpOf<"matmul">["parts"][number];

/**
 * Returns the leading parts that form one matrix on the GPU: adjacent parts of one type with new outputs, or one part
 * that adds to its output.
 */
function stackable(parts: readonly Part[], { plan }: ProgramBuilder): readonly Part[] {
  const typeOf = ({ weight }: Part) => plan.tensors[weight].info.type;
  if (parts[0].add !== undefined) return parts.slice(0, 1);
  const end = parts.findIndex((part) => part.add !== undefined || typeOf(part) !== typeOf(parts[0]));
  return end === -1 ? parts : parts.slice(0, end);
}

function lowerStack(parts: readonly Part[], x: Slice, to: ProgramBuilder): void {
  const { add, out } = parts[0];
  const biased = parts.some((part) => part.bias !== undefined);
  to.push<MatMulOp>({
    op: "matmul",
    rows: to.rowsOf(out),
    matrix: to.matrix(parts.map((part) => part.weight)),
    x,
    y: to.slice(out),
    epilogue: add !== undefined ? "add" : "store",
    bias: biased
      ? to.vector(parts.map((p) => ({ tensor: p.bias, length: to.plan.tensors[p.weight].rows })))
      : undefined,
  });
}
