import { opKind } from "../op.ts";
import { floats, forms } from "../operands.ts";

/**
 * Quantization: out = x in 8-bit blocks of 32, in one plane or two. The builder adds it if quantized weights read a
 * value that exists only as floats.
 */
export const QUANTIZE = opKind({
  op: "quantize",
  code: 7,
  operands: { x: floats("read"), out: forms("write", 2) },
  text: (op, t) => `${t.forms(op.out)} = quantize(${t.buffer(op.x)})`,
});
