import { FORMATS } from "../gguf/formats.ts";
import { buffersOf, kindOf, type PlanOp, productsOf } from "./ops/registry.ts";
import {
  type BufferRows,
  kvBytesPerLayer,
  type Plan,
  type PlanTensor,
  stateBytes,
  type TensorId,
} from "./plan.ts";

/** Operations of matrices, a multiply-add being two, by the arithmetic that the weights' format is computed in. */
export interface Operations {
  readonly int8: number;
  readonly float: number;
}

/** What a plan's matrices cost: the part of a step that grows with neither its rows nor their context, and the rest. */
export interface PlanCost {
  /** Packed bytes of the matrices that every step reads once. */
  readonly weightBytes: number;
  /** Packed bytes of those that a step reads in which some row wants logits. */
  readonly logitsWeightBytes: number;
  /** Operations for each row of the step, and for each row that wants logits. */
  readonly row: Operations;
  readonly logitsRow: Operations;
  /** Bytes that attention reads for each token of context; layers with a window read a bounded number and are left out. */
  readonly kvBytesPerToken: number;
  /** Bytes of recurrent state that each sequence's part of a step reads, and writes. */
  readonly stateBytes: number;
}

/** What one step has to do. */
export interface StepWork {
  readonly rows: number;
  readonly logitRows: number;
  /** Tokens of context that are read, over all sequences. */
  readonly kvTokens: number;
  readonly sequences: number;
}

/** What the machine can do at best: 10^9 bytes and 10^9 operations a second. */
export interface MachineLimits {
  readonly readGbps: number;
  readonly int8Gops: number;
  readonly f32Gflops: number;
}

/** Counts bytes and multiply-adds op by op. `packedBytes` says what a matrix takes in memory. */
export function planCost(plan: Plan, packedBytes: (tensor: PlanTensor) => number): PlanCost {
  const bytes: Record<BufferRows, number> = { step: 0, logits: 0 };
  const operations = { step: { int8: 0, float: 0 }, logits: { int8: 0, float: 0 } };
  for (const { weight, rows } of matricesRead(plan)) {
    const tensor = plan.tensors[weight];
    bytes[rows] += packedBytes(tensor);
    operations[rows][FORMATS[tensor.info.type].float ? "float" : "int8"] += 2 * tensor.rows *
      tensor.columns;
  }
  return {
    weightBytes: bytes.step,
    logitsWeightBytes: bytes.logits,
    row: operations.step,
    logitsRow: operations.logits,
    kvBytesPerToken: plan.ops.reduce((sum, op) => sum + contextBytes(plan, op), 0),
    stateBytes: stateBytes(plan),
  };
}

/**
 * Seconds that a step takes at least: what it reads over the bandwidth, or what its matrices compute over the peak of
 * their arithmetic, whichever is more. Attention's own arithmetic and what norms and activations move are left out.
 */
export function stepFloor(cost: PlanCost, work: StepWork, limits: MachineLimits): number {
  const bytes = cost.weightBytes + (work.logitRows > 0 ? cost.logitsWeightBytes : 0) +
    work.kvTokens * cost.kvBytesPerToken + 2 * work.sequences * cost.stateBytes;
  const total = (kind: keyof Operations) =>
    work.rows * cost.row[kind] + work.logitRows * cost.logitsRow[kind];
  const arithmetic = total("int8") / limits.int8Gops + total("float") / limits.f32Gflops;
  return Math.max(bytes / limits.readGbps, arithmetic) / 1e9;
}

/** Bytes that an op reads for each token of an unbounded context. */
function contextBytes({ kv }: Plan, op: PlanOp): number {
  const work = kindOf(op).context?.(op);
  return work && work.window === undefined ? kvBytesPerLayer(kv.type, kv.layers[work.cache]) : 0;
}

/** The matrices that are read whole, with the rows that they are multiplied by: all but the embedding's look-up. */
function matricesRead(plan: Plan): { weight: TensorId; rows: BufferRows }[] {
  return plan.ops.flatMap((op) => productsOf(op).map((weight) => ({ weight, rows: rowsOf(plan, op) })));
}

/** The rows that an op reads. */
export function rowsOf(plan: Plan, op: PlanOp): BufferRows {
  const read = buffersOf(op).find(({ access }) => access !== "write");
  if (!read) throw new TypeError(`${op.op} reads no rows`);
  return plan.buffers[read.buffer].rows;
}
