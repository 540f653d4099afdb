/** Plans that also tally the inputs of their matrices: the sums of squares that importance matrices hold. */
import { mainOps, type PlanOp, productsOf } from "./ops/registry.ts";
import type { BufferId, Chosen, Forms, Plan, PlanBuffer } from "./plan.ts";
import { wholeName } from "./tensor_rows.ts";

/** A tallied input, which one or more matrices read. */
export interface TalliedInput {
  /** Names of the matrices in the file. */
  readonly names: readonly string[];
  readonly columns: number;
  /** Number of experts; 1 for a matrix that every row reads. */
  readonly count: number;
  /** Whether the tallies end with the number of rows of each expert. */
  readonly counted: boolean;
}

export interface TalliedPlan {
  readonly plan: Plan;
  /** The tallied inputs, in the order of the tallies in a step's output. */
  readonly inputs: readonly TalliedInput[];
}

/** An op that multiplies rows by matrices. */
type Reader = PlanOp & { readonly x: Forms; readonly chosen?: Chosen };

/**
 * Returns the plan with a tally of the input rows before every matrix product in a layer. Rows are tallied as floats,
 * before rounding. Products with a matrix per head, drafts and logits have no tally.
 */
export function tallyInputs(plan: Plan): TalliedPlan {
  const buffers: PlanBuffer[] = [...plan.buffers];
  const ops: PlanOp[] = [];
  const inputs = new Map<PlanOp, TalliedInput>();
  const main = mainOps(plan);
  for (const op of main) {
    if (isReader(op) && isInLayer(plan, op)) {
      const [x, at] = op.x.float === undefined ? floatsOf(ops, buffers, op.x) : [op.x.float, ops.length];
      const tally: PlanOp = { op: "tally", x, chosen: op.chosen };
      ops.splice(at, 0, tally);
      const names = productsOf(op).map((id) => wholeName(plan.tensors[id].info.name));
      const count = op.chosen?.count ?? 1;
      const { columns } = buffers[x];
      inputs.set(tally, { names: [...new Set(names)], columns, count, counted: op.chosen !== undefined });
    }
    ops.push(op);
  }
  return {
    plan: { ...plan, buffers, ops: [...ops, ...plan.ops.slice(main.length)] },
    inputs: ops.flatMap((op) => inputs.get(op) ?? []),
  };
}

function isReader(op: PlanOp): op is Reader {
  return "x" in op && typeof op.x === "object" && !("buffer" in op.x) && productsOf(op).length > 0;
}

function isInLayer({ tensors }: Plan, op: PlanOp): boolean {
  return productsOf(op).every((id) => tensors[id].info.name.startsWith("blk."));
}

/** Returns the buffer with the floats of a value in blocks, and the index in `ops` of an op that can read them. */
function floatsOf(ops: PlanOp[], buffers: PlanBuffer[], x: Forms): [x: BufferId, at: number] {
  const at = ops.findLastIndex((op) => "out" in op && typeof op.out === "object" && wrote(op.out, x));
  const writer = ops[at];
  // Later ops may overwrite the floats, so they must be read right after the op that makes blocks of them.
  if (writer.op === "quantize") return [writer.x, at + 1];
  const { out } = writer as { readonly out: Forms };
  const { name, rows, columns } = buffers[(x.quant ?? x.fine)!];
  const float = out.float ?? buffers.push({ name: `${name}.float`, form: "float", rows, columns }) - 1;
  ops[at] = { ...writer, out: { ...out, float } } as PlanOp;
  return [float, at + 1];
}

function wrote(out: Forms, x: Forms): boolean {
  return (x.quant !== undefined && out.quant === x.quant) || (x.fine !== undefined && out.fine === x.fine);
}
