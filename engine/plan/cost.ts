import { FORMATS } from "../gguf/formats.ts";
import { buffersOf, choiceOf, isPooling, kindOf, mainOps, type PlanOp, productsOf } from "./ops/registry.ts";
import { type Choice, kvBytesPerLayer, type Plan, type PlanTensor, stateBytes } from "./plan.ts";

/** Operations of matrices, a multiply-add being two, by the arithmetic that the weights' format is computed in. */
export interface Operations {
  readonly int8: number;
  readonly float: number;
}

/** What a plan's matrices cost: the part of a step that grows with neither its rows nor their context, and the rest. */
export interface PlanCost {
  /** Packed bytes of the matrices that every step reads once. */
  readonly weightBytes: number;
  /** Packed bytes of all experts' matrices, of which a step reads those that its rows choose. */
  readonly experts: readonly (Choice & { readonly bytes: number })[];
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

/** Counts bytes and multiply-adds op by op; those for pooled sequences, one a text, and those of drafts are left out. `packedBytes` says what a matrix takes in memory. */
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
 * Seconds that a step takes at least: what it reads over the bandwidth, or what its matrices compute over the peak of
 * their arithmetic, whichever is more. Attention's own arithmetic and what norms and activations move are left out.
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

/** Bytes that an op reads for each token of an unbounded context. */
function contextBytes({ kv }: Plan, op: PlanOp): number {
  const work = kindOf(op).context?.(op);
  return work && work.window === undefined ? kvBytesPerLayer(kv.type, kv.layers[work.cache]) : 0;
}

/** Packed bytes of the experts that a step of so many rows reads, where each expert is as likely to be chosen as any. */
export function expertBytes({ experts }: Pick<PlanCost, "experts">, rows: number): number {
  return experts.reduce((sum, { bytes, ...choice }) => sum + bytes * shareRead(choice, rows), 0);
}

/** Packed bytes of the matrices that a step of one token reads, which is asked for its logits. */
export function activeBytes(cost: PlanCost): number {
  return cost.weightBytes + expertBytes(cost, 1) + cost.logitsWeightBytes;
}

/** The share of the experts that some of so many rows choose; of matrices that all rows read, 1. */
export function shareRead(choice: Choice | undefined, rows: number): number {
  return 1 - (1 - shareOf(choice)) ** rows;
}

/** The share of the experts that a row chooses; of matrices that all rows read, 1. */
export function shareOf(choice: Choice | undefined): number {
  return choice ? choice.used / choice.count : 1;
}

function addExperts(to: (Choice & { bytes: number })[], { count, used }: Choice, bytes: number): void {
  const known = to.find((experts) => experts.count === count && experts.used === used);
  if (known) known.bytes += bytes;
  else to.push({ count, used, bytes });
}

/** A matrix that is read whole, and the rows that it is multiplied by; of experts, how many of them each row chooses. */
interface MatrixRead {
  readonly tensor: PlanTensor;
  readonly rows: WorkedRows;
  readonly choice?: Choice;
}

/** All but the embedding's look-up. An op may name a tensor twice, that has the rows of a gate and of what it gates. */
function matricesRead(plan: Plan): MatrixRead[] {
  return mainOps(plan).flatMap((op) =>
    [...new Set(productsOf(op))].map((id) => ({
      tensor: plan.tensors[id],
      rows: rowsOf(plan, op),
      choice: choiceOf(op),
    }))
  );
}

/** All rows of a step, those whose logits are wanted, or one for each sequence that is pooled. */
type WorkedRows = "step" | "logits" | "pools";

/** Which rows an op works for. */
export function rowsOf(plan: Plan, op: PlanOp): WorkedRows {
  if (isPooling(plan, op)) return "pools";
  const read = buffersOf(op).find(({ access }) => access !== "write");
  if (!read) throw new TypeError(`${op.op} reads no rows`);
  return plan.buffers[read.buffer].rows === "logits" ? "logits" : "step";
}
