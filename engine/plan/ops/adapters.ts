import type { AdaptedRows } from "../adapters.ts";
import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { chosenExperts, floats, forms, product } from "../operands.ts";
import { EXPERT_SUM } from "./expert_sum.ts";

/** chosen = the adapters that each row's sequence uses, with the factors of their products. */
export const ADAPTERS = opKind({
  op: "adapters",
  code: 40,
  operands: { chosen: chosenExperts("write") },
  text: (op, t) => `${t.buffer(op.chosen.buffer)} = adapters(${op.chosen.count})`,
});

/** For each adapter e that a row uses: out = weight_e x. */
export const LOW_RANK = opKind({
  op: "low_rank",
  code: 41,
  operands: {
    x: floats("read"),
    chosen: chosenExperts("read"),
    weight: product,
    out: forms("write", 2),
  },
  text: (op, t) =>
    `${t.forms(op.out)} = low_rank(${t.tensor(op.weight)}) of ${t.buffer(op.x)} by ${
      t.buffer(op.chosen.buffer)
    }`,
});

/** Adds the adapters' products with x, if any adapter changes the matrix, to the product `out` of the matrix. */
export function adapt(
  b: PlanBuilder,
  x: Value,
  matrix: Omit<AdaptedRows, "columns" | "rows">,
  out: Value,
): void {
  const pair = x.rows === "step"
    ? b.lowRank({ ...matrix, columns: x.columns, rows: out.columns })
    : undefined;
  if (!pair) return;
  const chosen = b.chosenAdapters((chosen) => b.push(ADAPTERS, { chosen }));
  const { count, used } = chosen;
  const inner = b.floats("adapted", { count, used }, pair.rank);
  const hidden = { float: b.asFloat(inner) };
  b.push(LOW_RANK, { x: b.asFloat(x), chosen, weight: pair.a, out: hidden });
  b.push(EXPERT_SUM, { chosen, x: hidden, weight: pair.b, out: b.update(out), add: true });
}
