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
 * Adds the sum of squares of each column of x, over the step's rows, to the step's output. With experts, each expert
 * has sums over the rows that chose it. The number of rows of each expert follows.
 */
export const TALLY = opKind({
  op: "tally",
  code: 44,
  operands: { x: floats("read"), chosen },
  text: ({ x, chosen }, t) => `tally(${t.buffer(x)}${chosen ? ` by ${t.buffer(chosen.buffer)}` : ""})`,
});
