import { basename } from "@std/path";
import { buildPlan, readRopeFactors } from "../engine/architectures/registry.ts";
import {
  type Arithmetic,
  type Backend,
  type BackendName,
  KV_BLOCK_TOKENS,
  type LogitsRequest,
  type StepSequence,
} from "../engine/backend/backend.ts";
import { prepareBackend } from "../engine/backend/choose.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { type MachineLimits, type PlanCost, planCost, stepFloor } from "../engine/plan/cost.ts";
import type { Plan } from "../engine/plan/plan.ts";

export interface BenchOptions {
  readonly model: string;
  /** By default one a core. */
  readonly threads?: number;
  /** By default the best instruction set that the CPU has. */
  readonly isa?: string;
  /** Where to compute, by default on the CPU; and how the GPU computes matrix products. */
  readonly backend?: BackendName;
  readonly arithmetic?: Arithmetic;
  /** Tokens of each prompt, and tokens decoded after it. By default 512 and 64, or what the model's context holds. */
  readonly prefill?: number;
  readonly decode?: number;
  /** How many sequences are decoded side by side, one after the other. */
  readonly sequences: readonly number[];
  /** Told what is being measured. */
  readonly onPhase?: (phase: string) => void;
}

export interface BenchRow {
  readonly work: "prefill" | "decode";
  readonly sequences: number;
  /** Tokens in each sequence at the end of a prefill, or on average over a decode. */
  readonly context: number;
  /** Median, of all sequences together. */
  readonly tokensPerSecond: number;
  /** The least time that the machine's limits allow (engine/plan/cost.ts) over the time that it took. */
  readonly shareOfLimit: number;
}

export interface BenchReport {
  readonly model: string;
  readonly architecture: string;
  /** "cpu" or "webgpu", and why where it was chosen. */
  readonly backend: string;
  readonly choice: string;
  readonly isa: string;
  readonly threads: number;
  readonly limits: MachineLimits;
  readonly rows: readonly BenchRow[];
  /** The process's resident memory, in units of 10^6 bytes, once all is measured. */
  readonly rssMb: number;
  readonly loadMs: number;
}

const DEFAULT_PREFILL = 512;
const DEFAULT_DECODE = 64;
/** Rows of a prefill's steps, as the engine has them. */
const MAX_ROWS = 512;
const MIN_PREFILL_SAMPLES = 5;
const DECODE_SAMPLES = 5;

/**
 * Measures how fast a model is computed, without HTTP, scheduling or sampling, and what share of the machine's limits
 * that reaches. The limits are measured before and after, the better counts: it is what the machine could do.
 * Throws as loading a model does, and where the context does not hold prompt and answer.
 */
export async function benchModel(options: BenchOptions): Promise<BenchReport> {
  const { onPhase = () => {} } = options;
  onPhase("loading");
  const start = performance.now();
  const file = await openGguf(options.model);
  const plan = buildPlan(file, await readRopeFactors(file));
  const shape = shapeOf(plan, options);
  const most = Math.max(...options.sequences);
  const stateSlots = plan.recurrent.layers > 0 ? most : 0;
  const size = {
    kvBlocks: most * shape.blocks,
    stateSlots,
    maxRows: Math.max(MAX_ROWS, most),
    maxLogitRows: most,
  };
  const { backend, choice } = await prepareBackend(file, plan, size, options);
  const loadMs = performance.now() - start;
  try {
    onPhase("this machine's limits");
    const before = await backend.measureLimits();
    const runs = new Runs(backend, plan, shape);
    const prefills = await measurePrefill(runs, most, onPhase);
    const decodes = await measureDecode(runs, options.sequences, onPhase);
    onPhase("this machine's limits, again");
    const limits = better(before, await backend.measureLimits());
    const cost = planCost(plan, (tensor) => backend.tensorBytes(tensor));
    return {
      model: basename(options.model).replace(/\.gguf$/, ""),
      architecture: plan.architecture,
      backend: backend.info.name,
      choice,
      isa: backend.info.isa,
      threads: backend.info.threads,
      limits,
      rows: [
        prefillRow(prefills, shape, cost, limits),
        ...options.sequences.map((n) => decodeRow(decodes.get(n)!, n, shape, cost, limits)),
      ],
      rssMb: Deno.memoryUsage().rss / 1e6,
      loadMs,
    };
  } finally {
    backend.close();
  }
}

interface Shape {
  readonly prefill: number;
  readonly decode: number;
  /** KV blocks of a sequence. */
  readonly blocks: number;
}

function shapeOf({ contextLength }: Plan, options: BenchOptions): Shape {
  const decode = options.decode ?? Math.min(DEFAULT_DECODE, Math.ceil(contextLength / 4));
  const prefill = options.prefill ?? Math.min(DEFAULT_PREFILL, contextLength - decode);
  if (prefill < 1 || prefill + decode > contextLength) {
    const wanted = `${prefill} tokens of prompt and ${decode} of answer`;
    throw new Error(`Cannot measure ${wanted}: the model's context holds ${contextLength}`);
  }
  return { prefill, decode, blocks: Math.ceil((prefill + decode) / KV_BLOCK_TOKENS) };
}

/** Steps as the engine would have them, of sequences whose KV blocks lie apart. */
class Runs {
  readonly #tables: Int32Array[] = [];

  constructor(
    private readonly backend: Backend,
    private readonly plan: Plan,
    readonly shape: Shape,
  ) {}

  /** Seconds that the prompt of one sequence takes; the last row wants logits. */
  async prefill(sequence: number): Promise<number> {
    const { prefill } = this.shape;
    const start = performance.now();
    for (let cached = 0; cached < prefill; cached += MAX_ROWS) {
      const length = Math.min(MAX_ROWS, prefill - cached);
      const last = cached + length === prefill;
      await this.backend.step({
        tokens: this.#tokens(length, sequence + cached),
        sequences: [this.#part(sequence, 0, length, cached)],
        logits: last ? [greedy(length - 1)] : [],
      });
    }
    return (performance.now() - start) / 1000;
  }

  /** Seconds that the answers of sequences 0 to count - 1 take, a token each a step. */
  async decode(count: number): Promise<number> {
    const logits = Array.from({ length: count }, (_, row) => greedy(row));
    const start = performance.now();
    for (let i = 0; i < this.shape.decode; i++) {
      const cached = this.shape.prefill + i;
      const sequences = logits.map((_, start) => this.#part(start, start, 1, cached));
      await this.backend.step({ tokens: this.#tokens(count, cached), sequences, logits });
    }
    return (performance.now() - start) / 1000;
  }

  #part(sequence: number, start: number, length: number, cached: number): StepSequence {
    const read = cached === 0 ? undefined : sequence;
    const state = this.plan.recurrent.layers > 0 ? { read, write: sequence, saves: [] } : undefined;
    return { start, length, cached, blockTable: this.#table(sequence), state };
  }

  #table(sequence: number): Int32Array {
    const { blocks } = this.shape;
    return this.#tables[sequence] ??= Int32Array.from({ length: blocks }, (_, i) => sequence * blocks + i);
  }

  /** Any tokens will do, so long as they are not all the same. */
  #tokens(count: number, seed: number): Int32Array {
    return Int32Array.from({ length: count }, (_, i) => (i * 37 + seed * 11) % this.plan.vocabSize);
  }
}

const NONE = new Int32Array(0);

/** The likeliest token of a row. */
function greedy(row: number): LogitsRequest {
  return {
    row,
    candidates: 1,
    repetitionPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    penaltyTokens: NONE,
    penaltyCounts: NONE,
    biasTokens: NONE,
    biasValues: new Float32Array(0),
    probe: NONE,
  };
}

/** Fills the context of all sequences; seconds of each, after one that only warms up. */
async function measurePrefill(
  runs: Runs,
  sequences: number,
  onPhase: (phase: string) => void,
): Promise<number[]> {
  onPhase("warming up");
  await runs.prefill(0);
  const seconds: number[] = [];
  const samples = Math.max(sequences, MIN_PREFILL_SAMPLES);
  for (let i = 0; i < samples; i++) {
    onPhase(`prefill ${i + 1} of ${samples}`);
    seconds.push(await runs.prefill(i % sequences));
  }
  return seconds;
}

/** Seconds of each decode, by sequences. The settings take turns, so that a slow moment of the machine hits all. */
async function measureDecode(
  runs: Runs,
  settings: readonly number[],
  onPhase: (phase: string) => void,
): Promise<Map<number, number[]>> {
  const seconds = new Map(settings.map((n) => [n, [] as number[]]));
  for (let i = 0; i < DECODE_SAMPLES; i++) {
    for (const [n, samples] of seconds) {
      onPhase(`decode ${i + 1} of ${DECODE_SAMPLES}, ${n} sequences`);
      samples.push(await runs.decode(n));
    }
  }
  return seconds;
}

function prefillRow(seconds: number[], { prefill }: Shape, cost: PlanCost, limits: MachineLimits): BenchRow {
  const took = median(seconds);
  let floor = 0;
  for (let cached = 0; cached < prefill; cached += MAX_ROWS) {
    const end = Math.min(prefill, cached + MAX_ROWS);
    const work = { rows: end - cached, logitRows: end === prefill ? 1 : 0, kvTokens: end, sequences: 1 };
    floor += stepFloor(cost, work, limits);
  }
  return {
    work: "prefill",
    sequences: 1,
    context: prefill,
    tokensPerSecond: prefill / took,
    shareOfLimit: floor / took,
  };
}

function decodeRow(
  seconds: number[],
  sequences: number,
  { prefill, decode }: Shape,
  cost: PlanCost,
  limits: MachineLimits,
): BenchRow {
  const took = median(seconds);
  const context = prefill + (decode + 1) / 2;
  const work = { rows: sequences, logitRows: sequences, kvTokens: sequences * context, sequences };
  return {
    work: "decode",
    sequences,
    context: Math.round(context),
    tokensPerSecond: sequences * decode / took,
    shareOfLimit: decode * stepFloor(cost, work, limits) / took,
  };
}

function better(a: MachineLimits, b: MachineLimits): MachineLimits {
  return {
    readGbps: Math.max(a.readGbps, b.readGbps),
    int8Gops: Math.max(a.int8Gops, b.int8Gops),
    f32Gflops: Math.max(a.f32Gflops, b.f32Gflops),
  };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
