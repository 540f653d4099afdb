import { FORMATS } from "../gguf/formats.ts";
import type { ContextWork } from "./op.ts";
import { buffersOf, choiceOf, isPooling, kindOf, mainOps, type PlanOp, productsOf } from "./ops/registry.ts";
import {
  type Choice,
  keyBytesPerLayer,
  kvBytesPerLayer,
  type Plan,
  type PlanTensor,
  stateBytes,
} from "./plan.ts";

/** Arithmetic operations of matrices by type of arithmetic. A multiply-add counts as two. */
export interface Operations {
  readonly int8: number;
  readonly float: number;
}

/** Bytes and operations of a plan's matrices, split by the quantity with which they grow. */
export interface PlanCost {
  /** Packed bytes of matrices that every step reads once. */
  readonly weightBytes: number;
  /** Packed bytes of all experts' matrices. A step reads the experts that its rows choose. */
  readonly experts: readonly (Choice & { readonly bytes: number })[];
  /** Packed bytes of matrices that only steps with logits read. */
  readonly logitsWeightBytes: number;
  /** Operations per row of the step, and per row with logits. */
  readonly row: Operations;
  readonly logitsRow: Operations;
  /** Bytes that attention reads per token of context, except layers that read a bounded number of tokens. */
  readonly kvBytesPerToken: number;
  /** Bytes of recurrent state that a step reads and writes per sequence. */
  readonly stateBytes: number;
}

/** The amount of work in one step. */
export interface StepWork {
  readonly rows: number;
  readonly logitRows: number;
  /** Number of context tokens that attention reads, summed over all sequences. */
  readonly kvTokens: number;
  readonly sequences: number;
}

/** The machine's peak rates, in 10^9 bytes and 10^9 operations a second. */
export interface MachineLimits {
  readonly readGbps: number;
  readonly int8Gops: number;
  readonly f32Gflops: number;
}

/**
 * Counts bytes and multiply-adds op by op, without ops for pooling (once per text) and for drafts.
 * `packedBytes` returns a matrix's bytes in memory.
 */
export function planCost(plan: Plan, packedBytes: (tensor: PlanTensor) => number): PlanCost {
  const bytes = { step: 0, logits: 0 };
  const experts: (Choice & { bytes: number })[] = [];
  const operations = { step: { int8: 0, float: 0 }, logits: { int8: 0, float: 0 } };
  for (const { tensor, rows, choice } of matricesRead(plan)) {
    if (rows === "pools") continue;
    if (choice) addExperts(experts, choice, packedBytes(tensor));
    else bytes[rows] += packedBytes(tensor);
    operations[rows][FORMATS[tensor.info.type].float ? "float" : "int8"] += 2 * tensor.rows *
      tensor.columns * shareOf(choice);
  }
  return {
    weightBytes: bytes.step,
    experts,
    logitsWeightBytes: bytes.logits,
    row: operations.step,
    logitsRow: operations.logits,
    kvBytesPerToken: mainOps(plan).reduce((sum, op) => sum + contextBytes(plan, op), 0),
    stateBytes: stateBytes(plan),
  };
}

/**
 * Returns a lower bound for a step's seconds: the larger of bytes over bandwidth and matrix operations over peak rate.
 * Attention's arithmetic and the traffic of norms and activations are not counted.
 */
export function stepFloor(cost: PlanCost, work: StepWork, limits: MachineLimits): number {
  const bytes = cost.weightBytes + expertBytes(cost, work.rows) +
    (work.logitRows > 0 ? cost.logitsWeightBytes : 0) +
    work.kvTokens * cost.kvBytesPerToken + 2 * work.sequences * cost.stateBytes;
  const total = (kind: keyof Operations) =>
    work.rows * cost.row[kind] + work.logitRows * cost.logitsRow[kind];
  const arithmetic = total("int8") / limits.int8Gops + total("float") / limits.f32Gflops;
  return Math.max(bytes / limits.readGbps, arithmetic) / 1e9;
}

/** Returns the bytes that an op reads per token of context; 0 if it reads a bounded number of tokens. */
function contextBytes(plan: Plan, op: PlanOp): number {
  const work = kindOf(op).context?.(op);
  return work && work.window === undefined && work.reads === undefined ? bytesPerToken(plan, work) : 0;
}

/** Returns the bytes that work reads per token of its context; 0 without a KV cache. */
export function bytesPerToken({ kv }: Plan, { cache, keysOnly }: ContextWork): number {
  if (cache === undefined) return 0;
  return (keysOnly ? keyBytesPerLayer : kvBytesPerLayer)(kv.type, kv.layers[cache]);
}

/** Returns the packed bytes of experts that a step of `rows` rows reads, if each expert is equally likely. */
function expertBytes({ experts }: Pick<PlanCost, "experts">, rows: number): number {
  return experts.reduce((sum, { bytes, ...choice }) => sum + bytes * shareRead(choice, rows), 0);
}

/** Returns the packed bytes of matrices that a step of one token with logits reads. */
export function activeBytes(cost: PlanCost): number {
  return cost.weightBytes + expertBytes(cost, 1) + cost.logitsWeightBytes;
}

/** Returns the share of experts that `rows` rows read; 1 for matrices that all rows read. */
export function shareRead(choice: Choice | undefined, rows: number): number {
  return 1 - (1 - shareOf(choice)) ** rows;
}

/** Returns the share of experts that one row reads; 1 for matrices that all rows read. */
export function shareOf(choice: Choice | undefined): number {
  return choice ? choice.used / choice.count : 1;
}

function addExperts(to: (Choice & { bytes: number })[], { count, used }: Choice, bytes: number): void {
  const known = to.find((experts) => experts.count === count && experts.used === used);
  if (known) known.bytes += bytes;
  else to.push({ count, used, bytes });
}

/** A matrix that is read as a whole, the rows it multiplies, and for experts the number that each row chooses. */
interface MatrixRead {
  readonly tensor: PlanTensor;
  readonly rows: WorkedRows;
  readonly choice?: Choice;
}

/**
 * Returns all matrices except the embedding, which is only looked up. An op with a fused gate and up names one tensor
 * twice.
 */
function matricesRead(plan: Plan): MatrixRead[] {
  return mainOps(plan).flatMap((op) =>
    [...new Set(productsOf(op))].map((id) => ({
      tensor: plan.tensors[id],
      rows: rowsOf(plan, op),
      choice: choiceOf(op),
    }))
  );
}

/** The rows that an op computes: all rows of a step, the rows with logits, or one row per pooled sequence. */
type WorkedRows = "step" | "logits" | "pools";

/** Returns the rows that an op computes. */
export function rowsOf(plan: Plan, op: PlanOp): WorkedRows {
  if (isPooling(plan, op)) return "pools";
  const read = buffersOf(op).find(({ access }) => access !== "write");
  if (!read) throw new TypeError(`${op.op} reads no rows`);
  return plan.buffers[read.buffer].rows === "logits" ? "logits" : "step";
}
