import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { convHeads, floats, integer, optional, real, weights } from "../operands.ts";
import { CONV_TAPS, type DeltaShape, type MambaShape } from "../values.ts";

/**
 * Op that convolves channels in place, starting at column `first`: x = silu(weight . the last CONV_TAPS inputs + bias).
 * Then the first keyHeads heads (queries) are divided by max(length, eps) and by sqrt(headDim), and the next keyHeads
 * heads (keys) by max(length, eps). The inputs are recurrent state.
 */
export const SHORT_CONV = opKind({
  op: "short_conv",
  code: 9,
  operands: {
    x: floats("update"),
    first: integer,
    weight: weights,
    /** Weights of keys and values, if `weight` has only those of queries. */
    keys: optional(weights),
    values: optional(weights),
    bias: optional(weights),
    heads: convHeads,
    eps: real,
  },
  text: (op, t) => {
    const { layer, heads, headDim, keyHeads } = op.heads;
    const parts = keyHeads === 0 ? `${heads}` : `${keyHeads}+${keyHeads}+${heads - 2 * keyHeads}`;
    const what = `state ${layer}, ${parts} heads of ${headDim}, eps ${op.eps}`;
    const from = op.first === 0 ? "" : ` from column ${op.first}`;
    return `short_conv(${t.buffer(op.x)}${from}, ${
      t.tensors(op.weight, op.keys, op.values, op.bias)
    }; ${what})`;
  },
});

/** Convolves queries, keys and values in place. `name` is the weight tensor, [CONV_TAPS, channels]. */
export function convolveHeads(
  b: PlanBuilder,
  qkv: Value,
  name: string,
  { layer, keyHeads, valueHeads, headDim }: DeltaShape,
  eps: number,
): void {
  const weight = b.vector(`${name}.weight`, CONV_TAPS, qkv.columns);
  const heads = { layer, heads: 2 * keyHeads + valueHeads, headDim, keyHeads };
  b.push(SHORT_CONV, { x: b.asFloat(qkv), first: 0, weight, heads, eps });
}

/**
 * Convolves queries, keys and values in place. Each has a weight tensor of its own, and there are as many key heads as
 * value heads.
 */
export function convolveApart(
  b: PlanBuilder,
  qkv: Value,
  names: { readonly queries: string; readonly keys: string; readonly values: string },
  { layer, valueHeads, headDim }: DeltaShape,
  eps: number,
): void {
  const channels = valueHeads * headDim;
  const [weight, keys, values] = [names.queries, names.keys, names.values].map((name) =>
    b.vectorOf(`${name}.weight`, CONV_TAPS, 1, channels)
  );
  const heads = { layer, heads: 3 * valueHeads, headDim, keyHeads: valueHeads };
  b.push(SHORT_CONV, { x: b.asFloat(qkv), first: 0, weight, keys, values, heads, eps });
}

/** Numbers of channels to convolve together, so that each row's channels share few cache lines. */
const TOGETHER = [64, 32, 16];

/**
 * Convolves Mamba2's columns after the gates in place: channels, write vectors and read vectors. `name` is the weight
 * tensor, [CONV_TAPS, channels]. A bias is added if the file has one.
 */
export function convolveChannels(b: PlanBuilder, rows: Value, name: string, m: MambaShape): void {
  const first = m.heads * m.headDim;
  const channels = first + 2 * m.groups * m.stateSize;
  const weight = b.vector(`${name}.weight`, CONV_TAPS, channels);
  const bias = b.file.tensors.has(`${name}.bias`) ? b.vector(`${name}.bias`, channels) : undefined;
  const headDim = TOGETHER.find((width) => channels % width === 0)!;
  const heads = { layer: m.layer, heads: channels / headDim, headDim, keyHeads: 0 };
  b.push(SHORT_CONV, { x: b.asFloat(rows), first, weight, bias, heads, eps: 0 });
}
