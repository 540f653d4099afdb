import { basename } from "@std/path";
import {
  type ActivationPrecision,
  type Arithmetic,
  type Backend,
  type BackendName,
  KV_BLOCK_TOKENS,
  type KvType,
} from "../engine/backend/backend.ts";
import { type AnyBackend, prepareBackend, type PrepareOptions } from "../engine/backend/choose.ts";
import { WebGpuBackend } from "../engine/backend/webgpu/webgpu.ts";
import { describeModel } from "../engine/load/describe.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import { activeBytes, type MachineLimits, planCost } from "../engine/plan/cost.ts";
import { isEncoder, kvBytesPerToken, type Plan, type PlanTensor } from "../engine/plan/plan.ts";
import { attentionFloor, evenStepFloor } from "./floors.ts";
import { gpuProfileRows, profileGpu } from "./gpu_profile.ts";
import { checkMemory } from "./memory.ts";
import { profile, type ProfileRow, profileRows } from "./profile.ts";
import {
  decodeSample,
  median,
  overPaper,
  prefillSample,
  type Sample,
  textsSample,
  togetherSample,
} from "./samples.ts";
import { blocksOf, Steps } from "./steps.ts";

export interface BenchOptions extends Pick<PrepareOptions, "words"> {
  readonly model: string;
  /** Number of threads; by default one per physical core. */
  readonly threads?: number;
  /** Instruction set; by default the best one of the CPU. */
  readonly isa?: string;
  /** Backend, by default the CPU; and the arithmetic of a GPU's matrix products. */
  readonly backend?: BackendName;
  readonly arithmetic?: Arithmetic;
  /** Type of the KV cache; by default f16. */
  readonly kvType?: KvType;
  /** Precision of activations; by default 8 bits. */
  readonly activations?: ActivationPrecision;
  /** Called for a problem that does not stop the benchmark. */
  readonly warn?: (message: string) => void;
  /**
   * Tokens of each prompt, and tokens decoded after it. By default 512 and 64, or as far as the model's context allows.
   */
  readonly prefill?: number;
  readonly decode?: number;
  /** Numbers of sequences to decode concurrently; each number is measured in turn. */
  readonly sequences: readonly number[];
  /** Context lengths at which the prefill and decode of one sequence are measured too. */
  readonly contexts?: readonly number[];
  /** Whether to compare the prefill of many prompts together with one prompt of the same total length. */
  readonly together?: boolean;
  /** Whether to measure also decoding after a prompt that all sequences share. */
  readonly sharedPrefix?: boolean;
  /** Whether to compare each op's time with its lower bound. */
  readonly profile?: boolean;
  /** Maximum bytes of memory to use; by default the free memory, if known. Does not apply to a GPU's memory. */
  readonly freeBytes?: number;
  /** Called with a description of each phase of the measurement. */
  readonly onPhase?: (phase: string) => void;
}

export interface BenchRow {
  readonly work: Sample["work"];
  readonly sequences: number;
  /** Tokens per sequence: at the end of a prefill, or the mean over a decode. For an image: its number of patches. */
  readonly context: number;
  /** Median tokens per second over the samples, for all sequences together. */
  readonly tokensPerSecond: number;
  /** Lower bound of the time by the machine's limits (engine/plan/cost.ts), divided by the measured time. */
  readonly shareOfLimit: number;
  /**
   * For rows at several contexts: the measured time, divided by the first row's time plus the computed cost of the
   * additional attention. Undefined for other rows.
   */
  readonly overPaper?: number;
}

export interface BenchReport {
  readonly model: string;
  readonly architecture: string;
  /** Name of the backend, "cpu" or "webgpu". `choice`: the reason, if it was chosen automatically. */
  readonly backend: string;
  readonly choice: string;
  readonly isa: string;
  readonly threads: number;
  readonly kv: { readonly type: KvType; readonly bytesPerToken: number };
  /** Packed bytes of all weights, and of the weights that a step of one token reads: only the chosen experts. */
  readonly weights: { readonly bytes: number; readonly token: number };
  readonly limits: MachineLimits;
  readonly rows: readonly BenchRow[];
  /** Times by kind of op, largest gap first; empty unless requested. */
  readonly profile: readonly ProfileRow[];
  /** The process's resident memory after all measurements, in units of 10^6 bytes. */
  readonly rssMb: number;
  readonly loadMs: number;
}

const DEFAULT_PREFILL = 512;
const DEFAULT_DECODE = 64;
const PREFILL_SAMPLES = 5;
const DECODE_SAMPLES = 5;
const LONG_SAMPLES = 3;
/** Prompts that are prefilled together: their number, and the tokens of each. */
const TOGETHER = { sequences: 16, tokens: 128 };
/** Names of the settings of the measured memory, for messages. */
const SETTINGS = {
  all: "--pp, --tg, --npl and --context",
  less: "fewer sequences (--npl) or tokens (--pp, --tg, --context)",
};

/**
 * Measures how fast a model is computed, without HTTP, scheduling or sampling, and the share of the machine's limits
 * that it reaches. The limits are measured before and after. The higher ones count, because the machine has reached
 * them. Throws as loading a model does, and if prompt and answer do not fit into the context.
 */
export async function benchModel(options: BenchOptions): Promise<BenchReport> {
  const { onPhase = () => {}, contexts = [] } = options;
  onPhase("loading");
  const start = performance.now();
  const described = await describeModel({ ...options, speculate: "off" });
  const plan = await described.plan();
  const shape = shapeOf(plan, options);
  const longest = Math.max(shape.prefill, ...contexts) + shape.decode;
  const size = sizeOf(plan, shape, longest, options);
  checkMemory(plan, size, { ...options, weights: (await described.weightBytes()).all }, SETTINGS);
  const { backend, choice } = await prepareBackend(described.file, plan, size, options);
  const loadMs = performance.now() - start;
  try {
    onPhase("this machine's limits");
    const before = await backend.measureLimits();
    const apart = new Steps(backend, plan, shape.blocks);
    const samples = isEncoder(plan) ? await measureTexts(apart, shape, options.sequences, onPhase) : [
      await measurePrefill(apart, shape, Math.max(...options.sequences), onPhase),
      ...await measureDecode(backend, plan, shape, options, onPhase),
      ...options.together ? await measureTogether(backend, plan, onPhase) : [],
    ];
    const long = new Steps(backend, plan, blocksOf(longest));
    const sweep = await measureContexts(long, contexts, shape.decode, onPhase);
    const profileOf = options.profile ? await profiled(backend, plan, shape, options.sequences) : () => [];
    onPhase("this machine's limits, again");
    const limits = better(before, await backend.measureLimits());
    const bytesOf = (tensor: PlanTensor) => backend.tensorBytes(tensor);
    const cost = planCost(plan, bytesOf);
    const asRow = (sample: Sample): BenchRow => {
      const took = median(sample.seconds);
      const floor = sample.steps.reduce((sum, step) => sum + evenStepFloor(plan, cost, step, limits), 0);
      const { work, sequences, context, tokens } = sample;
      return { work, sequences, context, tokensPerSecond: tokens / took, shareOfLimit: floor / took };
    };
    const overFirst = (sample: Sample) => {
      const first = sweep.find(({ work }) => work === sample.work)!;
      return overPaper(sample, first, (step) => attentionFloor(plan, cost, step, limits));
    };
    return {
      model: basename(options.model).replace(/\.gguf$/, ""),
      architecture: plan.architecture,
      backend: backend.info.name,
      choice,
      isa: backend.info.isa,
      threads: backend.info.threads,
      kv: { type: plan.kv.type, bytesPerToken: kvBytesPerToken(plan) },
      weights: { bytes: plan.tensors.reduce((sum, t) => sum + bytesOf(t), 0), token: activeBytes(cost) },
      limits,
      rows: [
        ...samples.map(asRow),
        ...sweep.map((sample) => ({ ...asRow(sample), overPaper: overFirst(sample) })),
      ],
      profile: profileOf(limits),
      rssMb: Deno.memoryUsage().rss / 1e6,
      loadMs,
    };
  } finally {
    backend.close();
  }
}

/** Returns the sizes that the measurements need; `longest` is the largest context in tokens. */
function sizeOf(plan: Plan, shape: Shape, longest: number, options: BenchOptions) {
  const most = Math.max(...options.sequences);
  const together = options.together ? TOGETHER.sequences : 0;
  const blocks = Math.max(most * shape.blocks, blocksOf(longest), together * blocksOf(TOGETHER.tokens));
  return {
    kvBlocks: blocks * plan.kv.windows.length,
    stateSlots: plan.states.length > 0 ? Math.max(most, together) : 0,
    maxRows: Math.max(MAX_ROWS, most, isEncoder(plan) ? shape.prefill : 0),
    maxLogitRows: Math.max(most, together),
  };
}

interface Shape {
  readonly prefill: number;
  readonly decode: number;
  /** Number of KV blocks of a sequence. */
  readonly blocks: number;
}

function shapeOf(plan: Plan, options: BenchOptions): Shape {
  const { contextLength } = plan;
  if (isEncoder(plan)) return encoderShape(plan, options);
  const decode = options.decode ?? Math.min(DEFAULT_DECODE, Math.ceil(contextLength / 4));
  const prefill = options.prefill ?? Math.min(DEFAULT_PREFILL, contextLength - decode);
  const longest = Math.max(
    prefill + decode,
    ...(options.contexts ?? []).map((context) => context + decode),
    options.together ? TOGETHER.sequences * TOGETHER.tokens : 0,
  );
  if (prefill < 1 || longest > contextLength) {
    const wanted = `${longest} tokens of prompt and answer`;
    throw new Error(`Cannot measure ${wanted}: the model's context holds ${contextLength}`);
  }
  return { prefill, decode, blocks: blocksOf(prefill + decode) };
}

/**
 * Returns the measurement's shape for an encoder: its texts are as long as prompts would be, and nothing is decoded.
 */
function encoderShape({ contextLength }: Plan, options: BenchOptions): Shape {
  const prefill = options.prefill ?? Math.min(DEFAULT_PREFILL, contextLength);
  if (prefill > contextLength) {
    throw new Error(`Cannot measure texts of ${prefill} tokens: the model's context holds ${contextLength}`);
  }
  if ((options.contexts ?? []).length > 0 || options.together || options.sharedPrefix) {
    throw new Error("An encoder decodes nothing: leave out --context, --together and --shared-prefix");
  }
  return { prefill, decode: 0, blocks: blocksOf(prefill) };
}

/** Measures the embedding of whole texts. The numbers of texts alternate. */
async function measureTexts(
  steps: Steps,
  { prefill }: Shape,
  settings: readonly number[],
  onPhase: (phase: string) => void,
): Promise<Sample[]> {
  onPhase("warming up");
  await steps.texts(1, prefill);
  const samples = settings.map((n) => textsSample(n, prefill));
  for (let i = 0; i < DECODE_SAMPLES; i++) {
    for (const { sequences, seconds } of samples) {
      onPhase(`texts ${i + 1} of ${DECODE_SAMPLES}, ${sequences} together`);
      seconds.push(await steps.texts(sequences, prefill));
    }
  }
  return samples;
}

/**
 * Measures prefill. First fills the context of all sequences to warm up: the system clears each page of the KV cache
 * when it is first touched.
 */
async function measurePrefill(
  steps: Steps,
  { prefill }: Shape,
  sequences: number,
  onPhase: (phase: string) => void,
): Promise<Sample> {
  for (let i = 0; i < sequences; i++) {
    onPhase(`warming up ${i + 1} of ${sequences}`);
    await steps.prefill(i, 0, prefill);
  }
  const sample = prefillSample(prefill);
  for (let i = 0; i < PREFILL_SAMPLES; i++) {
    onPhase(`prefill ${i + 1} of ${PREFILL_SAMPLES}`);
    sample.seconds.push(await steps.prefill(i % sequences, 0, prefill));
  }
  return sample;
}

/**
 * Measures decode after prompts whose keys and values are in the cache. Runs of all settings alternate, so that a slow
 * moment of the machine affects them equally.
 */
async function measureDecode(
  backend: Backend,
  plan: Plan,
  { prefill, decode, blocks }: Shape,
  { sequences: settings, sharedPrefix }: BenchOptions,
  onPhase: (phase: string) => void,
): Promise<Sample[]> {
  const sharedBlocks = Math.floor(prefill / KV_BLOCK_TOKENS);
  const [apart, sharing] = [0, sharedBlocks].map((shared) => new Steps(backend, plan, blocks, shared));
  const samples = settings.flatMap((n) => [
    { steps: apart, sample: decodeSample(n, prefill, decode) },
    ...sharedPrefix && n > 1
      ? [{ steps: sharing, sample: decodeSample(n, prefill, decode, sharedBlocks * KV_BLOCK_TOKENS) }]
      : [],
  ]);
  for (let i = 0; i < DECODE_SAMPLES; i++) {
    for (const { steps, sample: { work, sequences, seconds } } of samples) {
      onPhase(`${work} ${i + 1} of ${DECODE_SAMPLES}, ${sequences} sequences`);
      seconds.push(await steps.decode(sequences, prefill, decode));
    }
  }
  return samples.map(({ sample }) => sample);
}

/** Measures many prompts together, and one prompt as long as all of them, in turn. */
async function measureTogether(
  backend: Backend,
  plan: Plan,
  onPhase: (phase: string) => void,
): Promise<Sample[]> {
  const { sequences, tokens } = TOGETHER;
  const [many, one] = [togetherSample(sequences, tokens), prefillSample(sequences * tokens)];
  const apart = new Steps(backend, plan, blocksOf(tokens));
  const whole = new Steps(backend, plan, blocksOf(sequences * tokens));
  for (let i = 0; i < LONG_SAMPLES; i++) {
    onPhase(`${sequences} prompts together, and one as long, ${i + 1} of ${LONG_SAMPLES}`);
    many.seconds.push(await apart.prefillTogether(sequences, tokens));
    one.seconds.push(await whole.prefill(0, 0, sequences * tokens));
  }
  return [many, one];
}

/** Prefills one long prompt, and decodes at each context on the way. The prompt then overwrites the decoded tokens. */
async function measureContexts(
  steps: Steps,
  contexts: readonly number[],
  decode: number,
  onPhase: (phase: string) => void,
): Promise<Sample[]> {
  const ascending = [...new Set(contexts)].sort((a, b) => a - b);
  const samples = ascending.map((context) => ({
    context,
    prefill: prefillSample(context),
    decode: decodeSample(1, context, decode),
  }));
  for (let i = 0; i < LONG_SAMPLES; i++) {
    let [from, seconds] = [0, 0];
    for (const at of samples) {
      onPhase(`context of ${at.context}, ${i + 1} of ${LONG_SAMPLES}`);
      seconds += await steps.prefill(0, from, at.context);
      from = at.context;
      at.prefill.seconds.push(seconds);
      at.decode.seconds.push(await steps.decode(1, at.context, decode));
    }
  }
  return samples.flatMap((at) => [at.prefill, at.decode]);
}

/** Profiles the ops of a prefill and of decodes. The returned function adds lower bounds once the limits are known. */
async function profiled(
  backend: AnyBackend,
  plan: Plan,
  { prefill, decode, blocks }: Shape,
  settings: readonly number[],
): Promise<(limits: MachineLimits) => ProfileRow[]> {
  const steps = new Steps(backend, plan, blocks);
  if (backend instanceof WebGpuBackend) {
    await steps.prefill(0, 0, prefill);
    const times = await profileGpu(backend, steps, prefill);
    return (limits) => gpuProfileRows(times, limits);
  }
  const bytesOf = (tensor: PlanTensor) => backend.tensorBytes(tensor);
  if (isEncoder(plan)) {
    const one = await profile(backend, plan, textsSample(1, prefill), () => steps.texts(1, prefill));
    return (limits) => profileRows(one, plan, bytesOf, limits);
  }
  const profiles = [
    await profile(backend, plan, prefillSample(prefill), () => steps.prefill(0, 0, prefill)),
  ];
  for (const n of settings) {
    const sample = decodeSample(n, prefill, decode);
    profiles.push(await profile(backend, plan, sample, () => steps.decode(n, prefill, decode)));
  }
  return (limits) => profiles.flatMap((one) => profileRows(one, plan, bytesOf, limits));
}

/** Returns, for each limit, the higher of two measurements, because the machine reached that rate. */
export function better(a: MachineLimits, b: MachineLimits): MachineLimits {
  return {
    readGbps: Math.max(a.readGbps, b.readGbps),
    int8Gops: Math.max(a.int8Gops, b.int8Gops),
    f32Gflops: Math.max(a.f32Gflops, b.f32Gflops),
  };
}
