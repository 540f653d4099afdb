import { FORMATS } from "../engine/gguf/formats.ts";
import {
  type MachineLimits,
  type PlanCost,
  rowsOf,
  shareOf,
  shareRead,
  stepFloor,
  type StepWork,
} from "../engine/plan/cost.ts";
import { choiceOf, kindOf, type PlanOp, productsOf } from "../engine/plan/ops/registry.ts";
import { kvBytesPerLayer, type Plan, type PlanTensor } from "../engine/plan/plan.ts";

/** A step of sequences that all add as many rows to as much context. */
export interface EvenStep {
  readonly sequences: number;
  /** Rows that each adds. */
  readonly rows: number;
  /** Tokens that each has in the cache before. */
  readonly cached: number;
  /** Rows that want logits, over all sequences. */
  readonly logitRows: number;
}

/** Tokens that a row sees, averaged over the rows of a sequence. */
function meanContext({ rows, cached }: EvenStep, window: number): number {
  const growing = Math.max(0, Math.min(rows, window - cached)); // the others see a whole window
  const whole = rows > growing ? (rows - growing) * window : 0;
  return (growing * cached + growing * (growing + 1) / 2 + whole) / rows;
}

/** Operations that an op takes for each row, because of the row's context. */
function contextOperations(op: PlanOp, step: EvenStep): number {
  const work = kindOf(op).context?.(op);
  return work ? work.operations * meanContext(step, work.window ?? Infinity) : 0;
}

function workOf(step: EvenStep): StepWork {
  const { sequences, rows, cached, logitRows } = step;
  return { rows: sequences * rows, logitRows, kvTokens: sequences * (cached + rows), sequences };
}

/** Whether integers of 16 bits, which keys and values are, multiply faster than floats: half as fast as those of 8, with VNNI. */
function hasFastPairs({ int8Gops, f32Gflops }: MachineLimits): boolean {
  return int8Gops / 2 > f32Gflops;
}

/** Operations of attention a second. */
function attentionGops(limits: MachineLimits): number {
  return hasFastPairs(limits) ? limits.int8Gops / 2 : limits.f32Gflops;
}

/** Seconds that a step takes at least: bytes, and operations of matrices and of attention. */
export function evenStepFloor(plan: Plan, cost: PlanCost, step: EvenStep, limits: MachineLimits): number {
  const attention = plan.ops.reduce((sum, op) => sum + contextOperations(op, step), 0);
  const { int8, float } = cost.row;
  const row = hasFastPairs(limits)
    ? { int8: int8 + 2 * attention, float }
    : { int8, float: float + attention };
  return stepFloor({ ...cost, row }, workOf(step), limits);
}

/** Seconds that all attention of a step takes at least: the cache's bytes or its operations, whichever is more. */
export function attentionFloor(plan: Plan, cost: PlanCost, step: EvenStep, limits: MachineLimits): number {
  const { rows, kvTokens } = workOf(step);
  const operations = rows * plan.ops.reduce((sum, op) => sum + contextOperations(op, step), 0);
  return Math.max(kvTokens * cost.kvBytesPerToken / limits.readGbps, operations / attentionGops(limits)) /
    1e9;
}

/** Seconds that one op of a step takes at least; 0 for ops whose bytes and operations are not counted. */
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
    const seen = Math.min(step.cached, (context.window ?? Infinity) - 1) + step.rows;
    const bytes = step.sequences * seen * kvBytesPerLayer(plan.kv.type, plan.kv.layers[context.cache]);
    const operations = contextOperations(op, step) * work.rows;
    return Math.max(bytes / limits.readGbps, operations / attentionGops(limits)) / 1e9;
  }
  if (productsOf(op).length === 0) return 0;
  const rows = rowsOf(plan, op) === "logits" ? work.logitRows : work.rows;
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
    .map(({ info }) => info.name.replace(/^blk\.\d+\./, "").replace(/\.weight$/, ""));
  return [op.op, names.join(" + ")].join(" ").trim();
}

function weightsOf(plan: Plan, op: PlanOp): PlanTensor[] {
  return [...new Set(productsOf(op))].map((weight) => plan.tensors[weight]);
}
