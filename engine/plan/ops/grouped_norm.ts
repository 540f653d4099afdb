import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, forms, integer, real, weights } from "../operands.ts";

/**
 * Grouped RMSNorm: out = x / rms(x) * weight, separately in each of `groups` groups, over columns of x from `first` on.
 */
export const GROUPED_NORM = opKind({
  op: "grouped_norm",
  code: 27,
  operands: {
    x: floats("read"),
    first: integer,
    weight: weights,
    groups: integer,
    eps: real,
    out: forms("write", 3),
  },
  text: (op, t) => {
    const what = `${op.groups} groups, eps ${op.eps}`;
    return `${t.forms(op.out)} = grouped_norm(${t.buffer(op.x)} from column ${op.first}, ${
      t.tensor(op.weight)
    }; ${what})`;
  },
});

/**
 * Norms `columns` columns of x from `first` on. `name` is the weight tensor, [columns / groups, groups]. A
 * single group may be [columns], because llama.cpp's tools drop a last dimension of 1.
 */
export function groupedNorm(
  b: PlanBuilder,
  x: Value,
  { first, columns, groups }: { readonly first: number; readonly columns: number; readonly groups: number },
  name: string,
  eps: number,
): Value {
  const out = b.value("normed", x.rows, columns);
  const flat = groups === 1 && b.file.tensors.get(name)?.shape.length === 1;
  const weight = flat ? b.vector(name, columns) : b.vector(name, columns / groups, groups);
  b.push(GROUPED_NORM, { x: b.asFloat(x), first, weight, groups, eps, out: out.forms });
  return out;
}
