import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { deltaHeads, floats, real, weights } from "../operands.ts";
import { CONV_TAPS, type DeltaShape } from "../plan.ts";

/**
 * In place, for each channel of queries, keys and values: x = silu(weight . the last CONV_TAPS inputs); then keys are
 * divided by max(their length, eps), and queries too, and by sqrt(headDim). The inputs are carried as state.
 */
export const SHORT_CONV = opKind({
  op: "short_conv",
  code: 9,
  operands: { x: floats("update"), weight: weights, heads: deltaHeads, eps: real },
  text: (op, t) => {
    const { layer, keyHeads, valueHeads, headDim } = op.heads;
    const what = `state ${layer}, ${keyHeads}+${keyHeads}+${valueHeads} heads of ${headDim}, eps ${op.eps}`;
    return `short_conv(${t.buffer(op.x)}, ${t.tensor(op.weight)}; ${what})`;
  },
});

/** Convolves queries, keys and values, in place. `name` is the tensor of the weights, [CONV_TAPS, channels]. */
export function shortConv(b: PlanBuilder, qkv: Value, name: string, heads: DeltaShape, eps: number): void {
  const weight = b.vector(`${name}.weight`, CONV_TAPS, qkv.columns);
  b.push({ op: "short_conv", x: b.asFloat(qkv), weight, heads, eps });
}
