/** What a step of a model loads and computes on the GPU, counted, beside the least that it has to load. */
import {
  type Arithmetic,
  greedyRequest,
  KV_BLOCK_TOKENS,
  type StepInput,
} from "../engine/backend/backend.ts";
import type { KernelDevice } from "../engine/backend/webgpu/kernels/types.ts";
import { lower } from "../engine/backend/webgpu/lowering.ts";
import { kvHeadBytes } from "../engine/backend/webgpu/ops/kv_cache.ts";
import type { GpuOp } from "../engine/backend/webgpu/program.ts";
import type { Plan } from "../engine/plan/plan.ts";
import { dispatchesOf, type PaperDispatch } from "./gpu_paper.ts";
import { countDispatch } from "./wgsl/count.ts";
import { addCount, type Count, noCount } from "./wgsl/tally.ts";

/** A step to count: sequences of so many rows each, after so many tokens. */
export interface CountedStep {
  readonly sequences: number;
  readonly rows: number;
  readonly cached: number;
}

/** What the dispatches of one kind do in a step. */
export interface TrafficRow {
  /** An op, such as "attention". */
  readonly op: string;
  readonly dispatches: number;
  /** Bytes; what all lanes of a workgroup load from one place counts once. */
  readonly loaded: number;
  readonly stored: number;
  /** Bytes that it must at least load and store: each once. Absent where nobody has said. */
  readonly floor?: number;
  /** Operations on floats and on integers, by component. */
  readonly floats: number;
  readonly integers: number;
}

/** Workgroups along an axis that are walked through; they stand for the others. */
const SAMPLES = 3;

export function inputOf(plan: Plan, { sequences, rows, cached }: CountedStep): StepInput {
  const blocks = Math.ceil((cached + rows) / KV_BLOCK_TOKENS);
  return {
    tokens: new Int32Array(sequences * rows),
    sequences: Array.from({ length: sequences }, (_, i) => ({
      start: i * rows,
      length: rows,
      cached,
      blockTable: Int32Array.from({ length: blocks }, (_, b) => i * blocks + b),
      state: plan.states.length === 0 ? undefined : { read: i, write: i, saves: [] },
    })),
    logits: Array.from({ length: sequences }, (_, i) => greedyRequest((i + 1) * rows - 1)),
  };
}

/** Counts a step, by kind of op, of all kinds or only of some; the whole comes last. */
export async function countStep(
  plan: Plan,
  step: CountedStep,
  device: KernelDevice,
  arithmetic: Arithmetic,
  { only, samples = SAMPLES }: { readonly only?: readonly string[]; readonly samples?: number } = {},
): Promise<TrafficRow[]> {
  const floors = floorsOf(plan, step);
  const byKind = new Map<string, { dispatches: number; count: Count }>();
  const counted = new Map<string, Count>();
  for (const paper of await dispatchesOf(plan, inputOf(plan, step), device, arithmetic)) {
    const kind = kindOf(paper);
    if (only && !only.includes(kind)) continue;
    const key = keyOf(paper);
    let count = counted.get(key);
    if (!count) counted.set(key, count = countPaper(paper, samples));
    const all = byKind.get(kind) ?? { dispatches: 0, count: noCount() };
    byKind.set(kind, all);
    all.dispatches++;
    addCount(all.count, count);
  }
  const rows = [...byKind].map(([op, { dispatches, count }]) => rowOf(op, dispatches, count, floors.get(op)));
  return [...rows, total(rows)];
}

/** Walks through one dispatch. */
export function countPaper({ kernel, workgroups, words }: PaperDispatch, samples: number): Count {
  const { code, entryPoint, constants } = kernel;
  return countDispatch({ code, entryPoint, constants, workgroups, words }, samples);
}

/** Dispatches of one key do the same. */
function keyOf({ kernel, workgroups, words }: PaperDispatch): string {
  return [kernel.key, workgroups.join("x"), words.get(0)?.join()].join(" ");
}

function kindOf({ dispatch: { label } }: PaperDispatch): string {
  return label.split(" ")[1];
}

function rowOf(op: string, dispatches: number, count: Count, floor?: number): TrafficRow {
  const traffic = [...count.storage.values()];
  return {
    op,
    dispatches,
    loaded: Math.round(traffic.reduce((sum, { loaded }) => sum + loaded, 0)),
    stored: Math.round(traffic.reduce((sum, { stored }) => sum + stored, 0)),
    floor,
    floats: Math.round(count.floats),
    integers: Math.round(count.integers),
  };
}

/** Where an op has no floor of its own, what it does is its floor in the whole. */
function total(rows: readonly TrafficRow[]): TrafficRow {
  const sum = (of: (row: TrafficRow) => number) => rows.reduce((all, row) => all + of(row), 0);
  return {
    op: "all",
    dispatches: sum((row) => row.dispatches),
    loaded: sum((row) => row.loaded),
    stored: sum((row) => row.stored),
    floor: sum((row) => row.floor ?? row.loaded + row.stored),
    floats: sum((row) => row.floats),
    integers: sum((row) => row.integers),
  };
}

/**
 * Bytes that ops have to move: of products the weights, their inputs and outputs in f32; of attention the keys and values of each
 * sequence, queries and outputs. Each once.
 */
function floorsOf(plan: Plan, { sequences, rows, cached }: CountedStep): Map<string, number> {
  const floors = new Map<string, number>();
  const add = (op: string, bytes: number) => floors.set(op, (floors.get(op) ?? 0) + bytes);
  const { ops, matrices } = lower(plan);
  for (const op of ops as readonly GpuOp[]) {
    if (op.op === "matmul") {
      const { tensors, columns, rows: outputs } = matrices[op.matrix];
      const m = op.rows === "step" ? sequences * rows : sequences;
      const weights = tensors.reduce((sum, id) => sum + plan.tensors[id].info.byteLength, 0);
      add("matmul", weights + 4 * m * (columns + outputs * (op.epilogue === "add" ? 2 : 1)));
    }
    if (op.op === "attention") {
      const { heads, headDim, gated } = op.heads;
      const { heads: kvHeads, headDim: dim } = plan.kv.layers[op.cache];
      const token = 2 * kvHeads * kvHeadBytes({ kv: plan.kv.type, kvHeads, headDim: dim }) / KV_BLOCK_TOKENS;
      const cache = sequences * (cached + rows) * token;
      add("attention", cache + 4 * sequences * rows * heads * headDim * (gated ? 3 : 2));
    }
  }
  return floors;
}
