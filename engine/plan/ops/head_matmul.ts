import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, integer, product } from "../operands.ts";

/**
 * Each head's part of a row of x, times a matrix of its own. Of a part [multiplied | rest] with `keeps` the output's is [rest | products];
 * of [rest | multiplied] without it is the products alone.
 */
export const HEAD_MATMUL = opKind({
  op: "head_matmul",
  code: 39,
  operands: {
    x: floats("read"),
    weight: product,
    heads: integer,
    rest: integer,
    keeps: flag,
    /** Blocks of weights read x in two planes. */
    fine: flag,
    out: floats("write"),
  },
  text: (op, t) => {
    const rest = op.rest === 0 ? "" : `, ${op.rest} columns ${op.keeps ? "kept" : "left out"}`;
    const planes = op.fine ? ", in two planes" : "";
    return `${t.buffer(op.out)} = head_matmul(${t.tensor(op.weight)}; ${op.heads} heads${rest}${planes}) of ${
      t.buffer(op.x)
    }`;
  },
});

export interface HeadMatrices {
  /** The tensor, [columns, rows, heads], without `.weight`. */
  readonly name: string;
  readonly heads: number;
  /** Rows of a head's matrix. */
  readonly rows: number;
  /** Columns of a head's part of x that are not multiplied. */
  readonly rest: number;
  /** They stand behind the others, and go in front of the products; else they stand in front, and are left out. */
  readonly keeps: boolean;
  /** Blocks of weights read x in two planes; by default in one. */
  readonly fine?: boolean;
}

/** Heads multiplied by matrices of their own, side by side in rows. */
export function headMatmul(
  b: PlanBuilder,
  x: Value,
  { name, heads, rows, rest, keeps, fine }: HeadMatrices,
): Value {
  const out = b.floats("heads", x.rows, heads * (rows + (keeps ? rest : 0)));
  const weight = b.matrices(`${name}.weight`, x.columns / heads - rest, rows, heads);
  b.push({
    op: "head_matmul",
    x: b.asFloat(x),
    weight,
    heads,
    rest,
    keeps,
    fine: b.fine || fine === true,
    out: b.asFloat(out),
  });
  return out;
}
