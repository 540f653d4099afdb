/**
 * Computes how a step would scale to more threads than this machine has. Each op's work is cut into runs of items as
 * the kernels do it (rust-kernels/src/executor/work.rs, kernels/tiles.rs, ops/), and the thread that is free first
 * takes the next run. The computed time includes barriers, and work that every thread repeats. It does not include
 * the effects of shared memory bandwidth, caches, falling clock rates, sockets and other programs.
 */
import { readPlan } from "../engine/architectures/registry.ts";
import { FORMATS } from "../engine/gguf/formats.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { byteLengthOf } from "../engine/gguf/tensor_types.ts";
import { rowsOf } from "../engine/plan/cost.ts";
import { buffersOf, kindOf, type PlanOp, productsOf } from "../engine/plan/ops/registry.ts";
import { formsOf, kvBytesPerLayer, type Plan, type PlanTensor } from "../engine/plan/plan.ts";
import type { EvenStep } from "./floors.ts";
import { opLabel } from "./floors.ts";
import { decodeSample, prefillSample } from "./samples.ts";

/**
 * Work of one core per nanosecond: bytes read, 8-bit and float operations, numbers moved by ops without products, and
 * logits searched. Measured on a Zen 4 with AVX-512.
 */
export const CORE = { bytes: 14, int8: 450, float: 150, numbers: 4, logits: 1.2 };
/**
 * Fraction of the time for a row's candidates that one thread takes alone, even if several threads share the row.
 * Measured on a Zen 4 with AVX2: a row takes 0.18 ms on one thread and 0.14 ms on two.
 */
const CHOICE = 0.55;
/** Nanoseconds of a barrier: a base, plus an amount for each thread. */
export const BARRIER = { base: 400, thread: 25 };
/** Nanoseconds of each thread to prepare a block of 32 columns of a row for products (`prepare`). */
const PREPARE = 0.5;

/** Constants of the kernels with AVX-512 and VNNI. A test compares them with the sources. */
export const KERNELS = {
  runsPerThread: 3,
  itemsPerThread: 6,
  lanes: 16,
  panels: 3,
  wideTokens: 33,
  floatPanels: 4,
  floatWideTokens: 13,
  thinPanels: 4,
  floatTileTokens: 4,
  mostPanels: 15,
  gluColumns: 288,
  attentionRows: 64,
  headsTogether: 4,
  block: 32,
  runs: 8,
  cutRows: 128,
  surveyed: 1024,
};

export interface PaperRow {
  readonly work: string;
  readonly threads: number;
  /** Parallel efficiency: speedup over one thread, divided by the number of threads. */
  readonly linear: number;
  /** Shares of the step's time: barriers, and work that every thread repeats. */
  readonly barriers: number;
  readonly repeated: number;
  /** Imbalance: work of the busiest thread divided by the mean, over all ops with products. */
  readonly imbalance: number;
  /** The ops with the largest loss: their time beyond an even split, as a share of the step. */
  readonly worst: readonly { readonly op: string; readonly lost: number }[];
}

/** Computes the rows of a model file. Reads only its header. */
export async function threadsOnPaper(path: string, threads: readonly number[]): Promise<PaperRow[]> {
  const file = await openGguf(path);
  return paperRows(await readPlan(file), threads);
}

/** Computes the rows of three steps: decode of one and of sixteen sequences, and a prefill of 512 tokens. */
export function paperRows(plan: Plan, threads: readonly number[]): PaperRow[] {
  const works: readonly [string, EvenStep][] = [
    ["decode, 1 sequence at 128", decodeSample(1, 128, 1).steps[0]],
    ["decode, 16 sequences at 128", decodeSample(16, 128, 1).steps[0]],
    ["prefill of 512", prefillSample(512).steps[0]],
  ];
  return works.flatMap(([work, step]) => threads.map((count) => ({ work, ...spread(plan, step, count) })));
}

/** Nanoseconds of an op: each of its runs of items in order, and the work that each thread repeats. */
interface OpWork {
  readonly runs: readonly number[];
  readonly each: number;
}

function spread(plan: Plan, step: EvenStep, threads: number): Omit<PaperRow, "work"> {
  let [one, all, barriers, byEach, busy, even] = [0, 0, 0, 0, 0, 0];
  const lost = new Map<string, number>();
  plan.ops.forEach((op, i) => {
    const alone = workOf(plan, op, step, 1);
    const repeated = threads > 1 && isRepeated(plan, i, step);
    const { runs, each } = repeated ? { runs: [], each: sum(alone.runs) } : workOf(plan, op, step, threads);
    const total = sum(runs);
    if (total + each === 0) return;
    const most = busiest(runs, threads);
    const barrier = threads === 1 || repeated ? 0 : BARRIER.base + BARRIER.thread * threads;
    one += sum(alone.runs) + alone.each;
    all += most + each + barrier;
    barriers += barrier;
    byEach += each;
    if (productsOf(op).length > 0) [busy, even] = [busy + most, even + total / threads];
    const label = opLabel(plan, op);
    lost.set(label, (lost.get(label) ?? 0) + most - total / threads + each);
  });
  const worst = [...lost].map(([op, time]) => ({ op, lost: time / all })).sort((a, b) => b.lost - a.lost);
  return {
    threads,
    linear: one / all / threads,
    barriers: barriers / all,
    repeated: byEach / all,
    imbalance: busy / even,
    worst: worst.slice(0, 3),
  };
}

/**
 * Returns whether each thread computes this one-row op for itself, without a barrier after it (program/own_rows.rs).
 */
function isRepeated({ ops, buffers }: Plan, i: number, step: EvenStep): boolean {
  const [op, next] = [ops[i], ops.at(i + 1)];
  if (op.op !== "rms_norm" && op.op !== "quantize") return false;
  if (next?.op !== "matmul" && next?.op !== "glu" && next?.op !== "activated") return false;
  const made = formsOf(op.out);
  const rows = buffers[made[0]].rows === "logits" ? step.logitRows : step.sequences * step.rows;
  return rows === 1 && formsOf(next.x).every((form) => made.includes(form));
}

/** Returns the number of parts that rows are cut into, as `cuts` of kernels/tiles.rs. */
function cutsOf(m: number, runs: number, threads: number): number {
  const wanted = Math.ceil(KERNELS.runs * threads / Math.max(1, runs));
  return Math.max(1, Math.min(wanted, Math.floor(m / KERNELS.cutRows)));
}

/** Returns the time until the last thread is done, if the thread that is free first takes the next run. */
export function busiest(runs: readonly number[], threads: number): number {
  const free = new Float64Array(threads);
  for (const run of runs) free[free.indexOf(Math.min(...free))] += run;
  return Math.max(...free);
}

/** Returns the lengths of the runs into which `total` items are cut, as `Items::tapering`. */
export function tapering(total: number, [unit, most]: readonly [number, number], threads: number): number[] {
  const runs: number[] = [];
  for (let left = total; left > 0; left -= runs.at(-1)!) {
    const share = Math.min(Math.floor(left / (KERNELS.runsPerThread * threads)), most);
    runs.push(Math.min(Math.max(Math.floor(share / unit) * unit, unit), left));
  }
  return runs;
}

/** Returns the times of runs of items that take `each` nanoseconds, as `Work::items`. */
function items(total: number, threads: number, each: number): number[] {
  const grain = Math.max(1, Math.floor(total / (threads * KERNELS.itemsPerThread)));
  return Array.from(
    { length: Math.ceil(total / grain) },
    (_, i) => each * Math.min(grain, total - i * grain),
  );
}

function workOf(plan: Plan, op: PlanOp, step: EvenStep, threads: number): OpWork {
  const first = plan.buffers[buffersOf(op)[0].buffer];
  const reads = buffersOf(op).some(({ access }) => access !== "write") ? rowsOf(plan, op) : first.rows;
  if (reads === "pools") return { runs: [], each: 0 };
  const rows = reads === "logits" ? step.logitRows : step.sequences * step.rows;
  switch (op.op) {
    case "matmul":
      return matmul(op.parts.map(({ weight, fine }) => [plan.tensors[weight], fine] as const), rows, threads);
    case "glu":
    case "activated": {
      const width = plan.buffers[op.out.float ?? op.out.quant ?? op.out.fine!].columns;
      return unit(productsOf(op).map((id) => plan.tensors[id]), width, rows, threads);
    }
    case "attention":
      return attention(plan, op, step, threads);
    case "candidates":
      return candidates(plan.vocabSize, rows, threads);
    default:
      return { runs: items(rows, threads, numbersOf(plan, op) / CORE.numbers), each: 0 };
  }
}

/**
 * Returns the work of the op `candidates`. If there are fewer rows than threads, the threads share each row's logits,
 * in parts.
 */
function candidates(vocabulary: number, rows: number, threads: number): OpWork {
  const time = vocabulary / CORE.logits;
  if (rows >= threads) return { runs: Array(rows).fill(time), each: 0 };
  const parts = rows * Math.ceil(vocabulary / KERNELS.surveyed);
  const barrier = BARRIER.base + BARRIER.thread * threads;
  return { runs: items(parts, threads, rows * (1 - CHOICE) * time / parts), each: CHOICE * time + barrier };
}

/** Returns the nanoseconds of one matrix row: reading it or multiplying it with all rows of x, whichever is longer. */
function rowTime({ info: { type }, columns }: PlanTensor, m: number, planes = 1): number {
  const operations = 2 * columns * m * planes / (FORMATS[type].float ? CORE.float : CORE.int8);
  return Math.max(byteLengthOf(type, columns) / CORE.bytes, operations);
}

/** Returns the number of panels in a tile, as `tile_panels` of kernels/tiles.rs. */
function tilePanels({ info: { type } }: PlanTensor, m: number): number {
  if (!FORMATS[type].float) return m < KERNELS.wideTokens ? 1 : KERNELS.panels;
  if (m < KERNELS.floatTileTokens) return 1;
  return m < KERNELS.floatWideTokens ? KERNELS.thinPanels : KERNELS.floatPanels;
}

function isWide({ info: { type } }: PlanTensor, m: number): boolean {
  return m >= (FORMATS[type].float ? KERNELS.floatWideTokens : KERNELS.wideTokens);
}

function prepare(tensors: readonly PlanTensor[], m: number): number {
  const blocks = tensors.find(({ info }) => !FORMATS[info.type].float);
  return blocks ? m * blocks.columns / KERNELS.block * PREPARE : 0;
}

/**
 * Returns the work of a matrix product, as in ops/matmul.rs: tiles of panels of all matrices, in runs that get shorter.
 * If there are few tiles, the rows are cut into parts too.
 */
function matmul(parts: readonly (readonly [PlanTensor, number])[], m: number, threads: number): OpWork {
  if (m === 0) return { runs: [], each: 0 };
  const { lanes, mostPanels } = KERNELS;
  const panelsOf = (tensor: PlanTensor) => Math.ceil(tensor.rows / lanes);
  const share = Math.floor(sum(parts.map(([tensor]) => panelsOf(tensor))) / threads);
  const times: number[] = [];
  let most = Infinity;
  for (const [tensor, fine] of parts) {
    const tile = Math.max(1, Math.min(tilePanels(tensor, m), share));
    if (isWide(tensor, m)) most = Math.min(most, Math.floor(mostPanels / tile));
    for (let row = 0; row < tensor.rows; row += tile * lanes) {
      const rows = Math.min(tile * lanes, tensor.rows - row);
      times.push(rows * rowTime(tensor, m, row < fine ? 2 : 1));
    }
  }
  const cuts = cutsOf(m, times.length, threads);
  const tiles = Array.from({ length: cuts }, () => times.map((time) => time / cuts)).flat();
  let at = 0;
  const runs = tapering(tiles.length, [1, Math.max(1, most)], threads)
    .map((length) => sum(tiles.slice(at, at += length)));
  return { runs, each: prepare(parts.map(([tensor]) => tensor), m) };
}

/**
 * Returns the work of a gated unit, as in ops/glu.rs: output columns in whole blocks and tiles, in runs that get
 * shorter.
 */
function unit(tensors: readonly PlanTensor[], width: number, m: number, threads: number): OpWork {
  if (m === 0) return { runs: [], each: 0 };
  const { lanes, block, gluColumns } = KERNELS;
  const whole = tensors.reduce((step, tensor) => commonMultiple(step, tilePanels(tensor, m) * lanes), block);
  const step = width < whole * threads ? block : whole;
  const time = sum(tensors.map((tensor) => rowTime(tensor, m)));
  const cuts = width % step === 0 ? cutsOf(m, width / step, threads) : 1;
  const runs = tapering(cuts * width, [step, gluColumns], threads).map((columns) => columns * time / cuts);
  return { runs, each: prepare(tensors, m) };
}

/**
 * Returns the work of attention, as in ops/attention: an item is a tile of rows with one KV head, or with some of its
 * query heads. Items with the longest context come first. Sequences share no prefix.
 */
function attention(
  plan: Plan,
  op: Extract<PlanOp, { op: "attention" }>,
  { sequences, rows, cached }: EvenStep,
  threads: number,
): OpWork {
  const { heads, kvHeads, headDim, layer } = op.heads;
  const tokens = Math.max(1, Math.floor(KERNELS.attentionRows / (heads / kvHeads)));
  const bytes = kvBytesPerLayer(plan.kv.type, plan.kv.layers[layer]) / kvHeads;
  const operations = 2 * 2 * (heads / kvHeads) * headDim;
  const tiles = sequences * Math.ceil(rows / tokens) * kvHeads;
  const most = Math.floor(heads / kvHeads / KERNELS.headsTogether);
  const pieces = Math.max(1, Math.min(Math.ceil(threads / tiles), most));
  const runs: number[] = [];
  for (let sequence = 0; sequence < sequences; sequence++) {
    for (let last = rows; last > 0; last -= tokens) {
      const first = Math.max(0, last - tokens);
      const [seen, mean] = [cached + last, cached + (first + 1 + last) / 2];
      const computed = operations * mean * (last - first) / pieces;
      const time = Math.max(seen * bytes / CORE.bytes, computed / CORE.float);
      for (let piece = 0; piece < kvHeads * pieces; piece++) runs.push(time);
    }
  }
  return { runs: threads === 1 ? runs : runs.sort((a, b) => b - a), each: 0 };
}

/** Returns the number of values that an op reads and writes per row. */
function numbersOf(plan: Plan, op: PlanOp): number {
  return sum(buffersOf(op).map(({ buffer }) => plan.buffers[buffer].columns)) *
    (kindOf(op).context ? KERNELS.block : 1);
}

function commonMultiple(a: number, b: number): number {
  for (let n = a;; n += a) if (n % b === 0) return n;
}

function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}
