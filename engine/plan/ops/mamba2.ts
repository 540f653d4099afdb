import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, mambaHeads, weights } from "../operands.ts";
import type { MambaShape } from "../values.ts";

/**
 * Mamba2: updates the state h of each head. Rows hold gates, channels x, write vectors B, read vectors C and a step
 * size per head. dt = softplus(step + bias), h = e^(decay dt) h + dt x B^T, and x = (h C + skip x) silu(gate) in place.
 * Channels, B and C come from `short_conv`.
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

/** Full names of Mamba2's tensors, each with a number per head. */
export interface MambaTensors {
  readonly decay: string;
  readonly skip: string;
  readonly bias: string;
}

/** Returns the width of the rows that Mamba2 reads. */
export function mambaColumns({ heads, headDim, groups, stateSize }: Omit<MambaShape, "layer">): number {
  return 2 * heads * headDim + 2 * groups * stateSize + heads;
}

/** Updates the Mamba2 state token by token. The output replaces the channels in place. */
export function mamba2(b: PlanBuilder, rows: Value, tensors: MambaTensors, heads: MambaShape): void {
  b.push(MAMBA2, {
    x: b.asFloat(rows),
    decay: b.vector(tensors.decay, 1, heads.heads),
    skip: b.vector(tensors.skip, 1, heads.heads),
    bias: b.vector(tensors.bias, heads.heads),
    heads,
  });
}
