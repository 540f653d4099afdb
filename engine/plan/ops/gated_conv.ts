import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { convState, floats, forms, weights } from "../operands.ts";

/**
 * Gated convolution: x's row has three parts, `before`, `behind` and `input`. Per channel: out = behind * (weight . the
 * last `taps` values of before * input). Earlier tokens' values are recurrent state.
 */
export const GATED_CONV = opKind({
  op: "gated_conv",
  code: 28,
  operands: { x: floats("read"), weight: weights, conv: convState, out: forms("write", 3) },
  mixer: () => "short convolution",
  text: (op, t) => {
    const what = `state ${op.conv.layer}, ${op.conv.taps} taps`;
    return `${t.forms(op.out)} = gated_conv(${t.buffer(op.x)}, ${t.tensor(op.weight)}; ${what})`;
  },
});

/**
 * Adds a gated short convolution over rows that hold `before`, `behind` and `input` side by side. `name` is
 * the weight tensor, [taps, channels]. The layer's state holds the last taps - 1 products.
 */
export function gatedConv(b: PlanBuilder, x: Value, name: string, taps: number): Value {
  const channels = x.columns / 3;
  const out = b.value("conv", x.rows, channels);
  const conv = { layer: b.stateLayer({ conv: { inputs: taps - 1, channels } }), taps };
  b.push(GATED_CONV, {
    x: b.asFloat(x),
    weight: b.vector(`${name}.weight`, taps, channels),
    conv,
    out: out.forms,
  });
  return out;
}
