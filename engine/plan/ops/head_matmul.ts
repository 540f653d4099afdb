import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, integer, product } from "../operands.ts";
import type { HeadRowsOf } from "../tensor_rows.ts";

/**
 * Multiplies each head's part of a row of x by the head's own matrix. With `keeps`, a part [multiplied |
 * rest] becomes [rest | products]. Without it, a part [rest | multiplied] becomes the products only.
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
    /** Whether products with quantized weights read x in two planes. */
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
  /** A tensor [columns, rows, heads], or some rows of each head in another tensor. */
  readonly weight: string | HeadRowsOf;
  readonly heads: number;
  /** Number of rows of each head's matrix. */
  readonly rows: number;
  /** Number of columns of a head's part of x that are not multiplied. */
  readonly rest: number;
  /**
   * Whether the rest follows the multiplied columns and is copied before the products. Otherwise the rest comes first
   * and is dropped.
   */
  readonly keeps: boolean;
  /** Whether products with quantized weights read x in two planes; by default in one. */
  readonly fine?: boolean;
}

/** Multiplies each head by its own matrix. Returns the results side by side. */
export function headMatmul(
  b: PlanBuilder,
  x: Value,
  { weight, heads, rows, rest, keeps, fine }: HeadMatrices,
): Value {
  const out = b.floats("heads", x.rows, heads * (rows + (keeps ? rest : 0)));
  b.push(HEAD_MATMUL, {
    x: b.asFloat(x),
    weight: b.matrices(weight, x.columns / heads - rest, rows, heads),
    heads,
    rest,
    keeps,
    fine: b.fine || fine === true,
    out: b.asFloat(out),
  });
  return out;
}
