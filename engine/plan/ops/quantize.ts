import { opKind } from "../op.ts";
import { floats, quantised } from "../operands.ts";

/** out = x in 8-bit blocks of 32. The builder adds it where a value that comes as floats is read by block formats. */
export const QUANTIZE = opKind({
  op: "quantize",
  code: 7,
  operands: { x: floats("read"), out: quantised("write") },
  text: (op, t) => `${t.buffer(op.out)} = quantize(${t.buffer(op.x)})`,
});
