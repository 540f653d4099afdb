import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, mambaHeads, weights } from "../operands.ts";
import type { MambaShape } from "../plan.ts";

/**
 * For each head, with a state h and rows that hold gates, channels x, what they are written by (B) and read by (C), and a
 * step size a head: dt = softplus(step + bias), h = e^(decay dt) h + dt x B^T, x = (h C + skip x) silu(gate), in place.
 * Channels, B and C are as `short_conv` left them.
 */
export const MAMBA2 = opKind({
  op: "mamba2",
  code: 26,
  operands: { x: floats("update"), decay: weights, skip: weights, bias: weights, heads: mambaHeads },
  mixer: () => "Mamba2",
  text: (op, t) => {
    const { layer, heads, headDim, groups, stateSize } = op.heads;
    const what = `state ${layer}, ${heads} heads of ${headDim} in ${groups} groups over ${stateSize}`;
    return `mamba2(${t.buffer(op.x)}, ${t.tensors(op.decay, op.skip, op.bias)}; ${what})`;
  },
});

/** Whole names of Mamba2's tensors: each has a number a head. */
export interface MambaTensors {
  readonly decay: string;
  readonly skip: string;
  readonly bias: string;
}

/** Columns of the rows that Mamba2 reads. */
export function mambaColumns({ heads, headDim, groups, stateSize }: Omit<MambaShape, "layer">): number {
  return 2 * heads * headDim + 2 * groups * stateSize + heads;
}

/** Takes the state through the tokens; what is read of it takes the channels' place. */
export function mamba2(b: PlanBuilder, rows: Value, tensors: MambaTensors, heads: MambaShape): void {
  b.push({
    op: "mamba2",
    x: b.asFloat(rows),
    decay: b.vector(tensors.decay, 1, heads.heads),
    skip: b.vector(tensors.skip, 1, heads.heads),
    bias: b.vector(tensors.bias, heads.heads),
    heads,
  });
}
