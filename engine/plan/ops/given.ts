import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { type Access, flag, integer, type Operand } from "../operands.ts";
import type { BufferId } from "../values.ts";

/** The rows that the op writes: the step brings all of the rows ("write") or some of the rows ("update"). */
const target: Operand<{ readonly buffer: BufferId; readonly access: Access }> = {
  words: 1,
  encode: (w, { buffer }) => w.u32(buffer),
  buffers: ({ buffer, access }) => [{ buffer, form: "float", access }],
};

/**
 * For each row that the step brings (`StepInput.given`), x = or += its columns from `first` on. Other rows of x stay.
 * `width` is the number of columns of a given row, the same in the whole plan.
 */
export const GIVEN = opKind({
  op: "given",
  code: 42,
  operands: { x: target, width: integer, first: integer, adds: flag },
  text: ({ x, width, first, adds }, t) =>
    `${t.buffer(x.buffer)} ${adds ? "+=" : "="} given(${width} columns, from column ${first})`,
});

/** The columns that an op reads of given rows. */
export interface GivenColumns {
  readonly width: number;
  readonly first: number;
}

/** Returns a new value of rows that the step must bring. */
export function givenRows(b: PlanBuilder, name: string, columns: number, given: GivenColumns): Value {
  const out = b.floats(name, "step", columns);
  b.push(GIVEN, { x: { buffer: b.asFloat(out), access: "write" }, ...given, adds: false });
  return out;
}

/** Replaces rows of x by given rows. */
export function replaceRows(b: PlanBuilder, x: Value, given: GivenColumns): void {
  b.push(GIVEN, { x: { buffer: b.update(x), access: "update" }, ...given, adds: false });
}

/** Adds given rows to rows of x. */
export function addRows(b: PlanBuilder, x: Value, given: GivenColumns): void {
  b.push(GIVEN, { x: { buffer: b.update(x), access: "update" }, ...given, adds: true });
}
