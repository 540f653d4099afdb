import type { PlanTensor } from "./values.ts";

/** The rows of a tensor that a plan's matrix holds, and the factor of its products. */
export interface AdaptedRows {
  /** The tensor's name in the model's file. */
  readonly name: string;
  readonly columns: number;
  readonly first: number;
  readonly rows: number;
  readonly times: number;
}

/** The matrices of all adapters for one matrix of the model: each adapter adds b (a x) to that matrix's product. */
export interface LowRankPair {
  readonly rank: number;
  /** One matrix of [columns, rank] per adapter. */
  readonly a: PlanTensor;
  /** One matrix of [rank, rows] per adapter. */
  readonly b: PlanTensor;
}

/** The low-rank adapters (LoRA) that a plan is built with. Each step says which adapters a sequence uses. */
export interface PlanAdapters {
  readonly count: number;
  /** Names of the tensors that adapters change. */
  readonly tensors: ReadonlySet<string>;
  pair(rows: AdaptedRows): LowRankPair;
  /** Throws GgufError, because no op applies an adapter to this tensor. */
  refuse(tensor: string): never;
}
