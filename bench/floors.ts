import { FORMATS } from "../engine/gguf/formats.ts";
import {
  bytesPerToken,
  type MachineLimits,
  type PlanCost,
  rowsOf,
  shareOf,
  shareRead,
  stepFloor,
  type StepWork,
} from "../engine/plan/cost.ts";
import type { ContextWork } from "../engine/plan/op.ts";
import { choiceOf, kindOf, type PlanOp, productsOf } from "../engine/plan/ops/registry.ts";
import type { Plan, PlanTensor } from "../engine/plan/plan.ts";

/** A step in which all sequences have the same number of rows and of cached tokens. */
export interface EvenStep {
  readonly sequences: number;
  /** Number of rows of each sequence in the step. */
  readonly rows: number;
  /** Number of each sequence's tokens in the cache before the step. */
  readonly cached: number;
  /** Number of rows with logits requests, over all sequences. */
  readonly logitRows: number;
  /** Number of pooled rows that the step returns; by default 0. */
  readonly pooledRows?: number;
  /** Number of first tokens whose keys and values all sequences share, so that a step reads them once; by default 0. */
  readonly shared?: number;
}

/** Returns the number of tokens that a row attends to, as the mean over the rows of a sequence. */
function meanContext({ rows, cached }: EvenStep, { cache, ...work }: ContextWork): number {
  const window = Math.min(work.window ?? Infinity, work.reads ?? Infinity);
  if (cache === undefined) return Math.min(rows, window);
  const growing = Math.max(0, Math.min(rows, window - cached)); // the other rows attend to a whole window
  const whole = rows > growing ? (rows - growing) * window : 0;
  return (growing * cached + growing * (growing + 1) / 2 + whole) / rows;
}

/** Returns an op's operations per row that depend on the row's context. */
function contextOperations(op: PlanOp, step: EvenStep): number {
  const work = kindOf(op).context?.(op);
  return work ? work.operations * meanContext(step, work) : 0;
}

function workOf(step: EvenStep): StepWork {
  const { sequences, rows, cached, logitRows, shared = 0 } = step;
  return {
    rows: sequences * rows,
    logitRows,
    kvTokens: shared + sequences * (cached + rows - shared),
    sequences,
  };
}

/**
 * Returns whether 16-bit integers, the type of keys and values, multiply faster than floats. With VNNI they are half as
 * fast as 8-bit integers.
 */
function hasFastPairs({ int8Gops, f32Gflops }: MachineLimits): boolean {
  return int8Gops / 2 > f32Gflops;
}

/** Returns the machine's rate for attention, in 10^9 operations a second. */
function attentionGops(limits: MachineLimits, float = false): number {
  return hasFastPairs(limits) && !float ? limits.int8Gops / 2 : limits.f32Gflops;
}

/** Returns a lower bound for a step's seconds, from its bytes and the operations of matrices and attention. */
export function evenStepFloor(plan: Plan, cost: PlanCost, step: EvenStep, limits: MachineLimits): number {
  const attention = plan.ops.reduce((sum, op) => sum + contextOperations(op, step), 0);
  const { int8, float } = cost.row;
  const row = hasFastPairs(limits)
    ? { int8: int8 + 2 * attention, float }
    : { int8, float: float + attention };
  return stepFloor({ ...cost, row }, workOf(step), limits);
}

/**
 * Returns a lower bound for the seconds of all attention in a step: reading the cache or computing, whichever is
 * longer.
 */
export function attentionFloor(plan: Plan, cost: PlanCost, step: EvenStep, limits: MachineLimits): number {
  const { rows, kvTokens } = workOf(step);
  const operations = rows * plan.ops.reduce((sum, op) => sum + contextOperations(op, step), 0);
  return Math.max(kvTokens * cost.kvBytesPerToken / limits.readGbps, operations / attentionGops(limits)) /
    1e9;
}

/** Returns a lower bound for one op's seconds; 0 for ops whose bytes and operations are not counted. */
export function opFloor(
  plan: Plan,
  op: PlanOp,
  packedBytes: (tensor: PlanTensor) => number,
  step: EvenStep,
  limits: MachineLimits,
): number {
  const work = workOf(step);
  const context = kindOf(op).context?.(op);
  if (context) {
    const { window = Infinity, reads = Infinity, float } = context;
    const seen = Math.min(Math.min(step.cached, window - 1) + step.rows, reads);
    const operations = contextOperations(op, step) * work.rows;
    return Math.max(
      step.sequences * seen * bytesPerToken(plan, context) / limits.readGbps,
      operations / attentionGops(limits, float),
    ) / 1e9;
  }
  if (productsOf(op).length === 0) return 0;
  const rows = { step: work.rows, logits: work.logitRows, pools: step.pooledRows ?? 0 }[rowsOf(plan, op)];
  if (rows === 0) return 0;
  const choice = choiceOf(op);
  let [bytes, seconds] = [0, 0];
  for (const tensor of weightsOf(plan, op)) {
    const peak = FORMATS[tensor.info.type].float ? limits.f32Gflops : limits.int8Gops;
    bytes += packedBytes(tensor) * shareRead(choice, rows);
    seconds += 2 * tensor.rows * tensor.columns * shareOf(choice) * rows / peak;
  }
  return Math.max(bytes / limits.readGbps, seconds) / 1e9;
}

/** Returns the op's label, equal in all layers: its kind and its weights. */
export function opLabel(plan: Plan, op: PlanOp): string {
  const names = weightsOf(plan, op)
    .map(({ info }) => info.name.replace(/^(v\.)?(blk|deepstack)\.\d+\./, "").replace(/\.weight$/, ""));
  return [op.op, names.join(" + ")].join(" ").trim();
}

function weightsOf(plan: Plan, op: PlanOp): PlanTensor[] {
  return [...new Set(productsOf(op))].map((weight) => plan.tensors[weight]);
}
