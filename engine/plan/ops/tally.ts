import { opKind } from "../op.ts";
import { chosenExperts, floats, type Operand } from "../operands.ts";
import type { Chosen } from "../values.ts";

const byExpert = chosenExperts("read");
const chosen: Operand<Chosen | undefined> = {
  encode: (w, value) => {
    w.u32(value ? 1 : 0);
    if (value) byExpert.encode(w, value);
  },
  buffers: (value) => value ? byExpert.buffers!(value) : [],
};

/**
 * Returns sums over the step's rows from the step: x squared, per column. With experts, per expert over the rows that
 * chose it, followed by the number of rows of each expert.
 */
export const TALLY = opKind({
  op: "tally",
  code: 44,
  operands: { x: floats("read"), chosen },
  text: ({ x, chosen }, t) => `tally(${t.buffer(x)}${chosen ? ` by ${t.buffer(chosen.buffer)}` : ""})`,
});
