import type { PlanBuilder, Value } from "../builder.ts";
import type { RowsOf } from "../tensor_rows.ts";
import { opKind } from "../op.ts";
import { adapt } from "./adapters.ts";
import { floats, forms, groups, integer, optional, product, real, weights } from "../operands.ts";

/** Matrix products: out (+)= weight x + bias, for several matrices that read the same x. */
export const MATMUL = opKind({
  op: "matmul",
  code: 3,
  operands: {
    x: forms("read", 3),
    parts: groups({
      weight: product,
      bias: optional(weights),
      out: floats("write"),
      /** Factor on the product, which is added to the contents of `out` (a residual connection); absent: not added. */
      add: optional(real),
      /** Number of leading matrix rows that read x in two planes. */
      fine: integer,
    }),
  },
  text: (op, t) =>
    op.parts.map((p) => {
      return `${t.buffer(p.out)} ${assignment(p.add)} ${t.affine(p.weight, p.bias)}`;
    }).join("; ") + ` of ${t.forms(op.x)}`,
});

function assignment(times?: number): string {
  if (times === undefined) return "=";
  return times === 1 ? "+=" : `+= ${times} *`;
}

export interface Linear {
  /** Tensor name without `.weight`; its `.bias` is added if the file has one. */
  readonly name: string;
  readonly rows: number;
  /** The rows of the tensor that form this matrix; by default all. */
  readonly part?: Omit<RowsOf, "name">;
  /** Value to which the product is added (a residual connection); by default it is a new value. */
  readonly addTo?: Value;
  /** Factor on the product that is added to `addTo`; by default 1. */
  readonly times?: number;
  /**
   * Number of leading rows whose products are sensitive to rounding. With quantized weights, x keeps about 15 bits
   * instead of 8 for these rows, at twice the work. All rows, or a multiple of 16.
   */
  readonly fine?: number;
}

/** Adds matrices that read the same x as one op. Returns one value per matrix. */
export function linear(b: PlanBuilder, x: Value, linears: readonly Linear[]): Value[] {
  const values = linears.map((l) => l.addTo ?? b.floats(shortName(l.name), x.rows, l.rows));
  const parts = linears.map((l, i) => {
    const weight = b.matrix(
      l.part ? { name: `${l.name}.weight`, ...l.part } : `${l.name}.weight`,
      x.columns,
      l.rows,
    );
    const fine = b.readsFloats(weight) ? 0 : b.fine ? l.rows : l.fine ?? 0;
    if (fine > 0) b.asFine(x);
    if (fine < l.rows) b.operand(x, weight);
    return {
      weight,
      bias: l.part ? b.biasPart({ name: l.name, ...l.part }, l.rows) : b.bias(l.name, l.rows),
      out: l.addTo ? b.update(l.addTo) : b.asFloat(values[i]),
      add: l.addTo && (l.times ?? 1),
      fine,
    };
  });
  b.push(MATMUL, { x: { ...x.forms }, parts });
  linears.forEach(({ name, part, times = 1 }, i) =>
    adapt(b, x, { name: `${name}.weight`, first: part?.first ?? 0, times }, values[i])
  );
  return values;
}

/** Describes matrices stacked in one tensor, by their row counts. */
export function fused(name: string, rows: readonly number[]): Linear[] {
  const of = rows.reduce((sum, n) => sum + n);
  let first = 0;
  return rows.map((rows) => ({ name, rows, part: { first: (first += rows) - rows, of } }));
}

/** Describes `count` matrices of `rows` rows each in one tensor of three dimensions. */
export function stacked(name: string, count: number, rows: number): Linear[] {
  const of = count * rows;
  return Array.from(
    { length: count },
    (_, i) => ({ name, rows, part: { first: i * rows, of, stacked: true } }),
  );
}

/** Returns a tensor's short name: `blk.3.attn_q` -> `attn_q`. */
function shortName(tensor: string): string {
  return tensor.slice(tensor.lastIndexOf(".") + 1);
}
