import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { flag, floats, integer, optional, real, weights } from "../operands.ts";
import type { HeadColumns } from "./text_attention.ts";

/** Op: norms heads (optional) and rotates them (if there is a table), in place and without a KV cache. */
export const ROTATE = opKind({
  op: "rotate",
  code: 24,
  operands: {
    x: floats("update"),
    column: integer,
    step: integer,
    heads: integer,
    headDim: integer,
    table: optional(floats("read")),
    norm: optional(weights),
    rotated: integer,
    interleaved: flag,
    eps: real,
    /** Whether heads without a norm tensor are normed, too. */
    unweighted: flag,
  },
  text: (op, t) => {
    const apart = op.step === op.headDim ? "" : ` every ${op.step}`;
    const what =
      `${op.heads} heads of ${op.headDim} from column ${op.column}${apart}, rotated ${op.rotated}` +
      (op.interleaved ? " interleaved" : "") + (op.unweighted ? ", normed without weights" : "");
    const operands = [t.buffers(...[op.x, op.table].filter((id) => id !== undefined)), t.tensors(op.norm)]
      .filter(Boolean);
    return `rotate(${operands.join(", ")}; ${what})`;
  },
});

/**
 * How heads are rotated: the number of leading dimensions, in pairs (2i, 2i + 1) if interleaved, and the table of
 * angles. Without a table, no dimension is rotated.
 */
export interface RotateOptions {
  readonly table?: Value;
  readonly rotated: number;
  readonly interleaved?: boolean;
  /** Tensor name of the RMSNorm of each head, applied before rotation. */
  readonly norm?: string;
  /** Whether heads are normed without weights if `norm` is missing. */
  readonly unweighted?: boolean;
  readonly eps?: number;
}

/** Norms heads if `norm` or `unweighted` is set, then rotates them by position, in place. */
export function rotate(
  b: PlanBuilder,
  at: HeadColumns,
  heads: number,
  headDim: number,
  { table, rotated, interleaved = false, norm, unweighted = false, eps = 0 }: RotateOptions,
): void {
  const { value, column, step = headDim } = at;
  b.push(ROTATE, {
    x: b.asFloat(value),
    column,
    step,
    heads,
    headDim,
    table: table && b.asFloat(table),
    norm: norm === undefined ? undefined : b.vector(`${norm}.weight`, headDim),
    rotated,
    interleaved,
    eps,
    unweighted,
  });
}
