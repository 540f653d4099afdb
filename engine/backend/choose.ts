import { FROM_SOURCE } from "../../package.ts";
import { worded, type Wording, type Words } from "../api/errors.ts";
import type { GgufFile } from "../gguf/types.ts";
import { firstLayers } from "../plan/layers.ts";
import { type Plan, wholeTables } from "../plan/plan.ts";
import {
  type Accuracy,
  type Backend,
  type BackendName,
  type CompileOptions,
  greedyRequest,
  KV_BLOCK_TOKENS,
  type StepInput,
} from "./backend.ts";
import { CpuBackend, type CpuOptions } from "./cpu/cpu.ts";
import { WasmBackend } from "./wasm/wasm.ts";
import { GpuError } from "./webgpu/errors.ts";
import type { WebGpuBackend, WebGpuOptions } from "./webgpu/webgpu.ts";

export type AnyBackend = CpuBackend | WasmBackend | WebGpuBackend;

/** Backends that use the Rust kernels, and so can run every plan. */
export type KernelBackend = CpuBackend | WasmBackend;

export interface PrepareOptions extends CpuOptions, WebGpuOptions {
  /** The backend to use; by default "cpu", or "wasm" without native kernels. */
  readonly backend?: BackendName;
  /** Whether a GPU may use an arithmetic that misses the accuracy gates; by default "gated": it may not. */
  readonly accuracy?: Accuracy;
  /** The reason why the GPU does not support the options; undefined if it does. */
  readonly notOnGpu?: Wording;
  /** Names of the settings in `choice`; by default the library's options. */
  readonly words?: Words;
  readonly progress?: (done: number, total: number) => void;
}

/** A backend with a model loaded and compiled. */
export interface Prepared {
  readonly backend: AnyBackend;
  /** The reason why "auto" chose the backend; empty for other settings. */
  readonly choice: string;
}

/** Speed of native kernels relative to WebAssembly, in words; docs/WASM.md has the figures. */
const NATIVE_SPEED = "twice";

/** The trial of "auto": number of model layers, of tokens to decode, and of prompt chunks of CHUNK_ROWS rows. */
const TRIAL_LAYERS = 4;
const TRIAL_STEPS = 9;
const TRIAL_CHUNKS = 3;
const CHUNK_ROWS = 64;
/** Lengths in tokens of the prompt and the answer for which "auto" compares the backends. */
const PROMPT_TOKENS = 512;
const ANSWER_TOKENS = 128;
/** Ratio of GPU to CPU time per token from which no prefill speed can compensate. Prefill is not measured then. */
const HOPELESS = 4;

/** Returns the default backend: native kernels or, if they are missing, WebAssembly. `warn` receives the reason. */
export function defaultBackend(warn?: (message: string) => void): "cpu" | "wasm" {
  const missing = CpuBackend.missing();
  if (!missing) return "cpu";
  const advice = FROM_SOURCE ? ": build them with `deno task build`" : "";
  warn?.(
    `Computing in WebAssembly, without native kernels (${missing}). They are about ${NATIVE_SPEED} as fast${advice}`,
  );
  return "wasm";
}

/** Opens the native or the WebAssembly kernels. Throws KernelError and WasmError. */
async function openKernels({ backend, ...options }: PrepareOptions): Promise<KernelBackend> {
  const kind = backend === "cpu" || backend === "wasm" ? backend : defaultBackend();
  return kind === "wasm" ? await WasmBackend.open(options) : new CpuBackend(options);
}

/** Returns the packed bytes of each of the plan's tensors; 0 for vectors. Throws KernelError and WasmError. */
export async function packedBytes(
  { tensors }: Plan,
  options: Pick<PrepareOptions, "backend" | "isa">,
): Promise<number[]> {
  const kernels = await openKernels({ ...options, threads: 1 });
  try {
    return await kernels.packedBytes(tensors);
  } finally {
    kernels.close();
  }
}

/**
 * Opens a backend, loads the weights and compiles the plan. "auto" chooses the GPU only if a prompt and an answer are
 * faster there than on the CPU. If the GPU fails in any way, "auto" chooses the CPU. Throws KernelError and GpuError.
 */
export async function prepareBackend(
  file: GgufFile,
  plan: Plan,
  size: CompileOptions,
  options: PrepareOptions,
): Promise<Prepared> {
  const cpu = () => openKernels(options);
  const gpu = async () => (await import("./webgpu/webgpu.ts")).WebGpuBackend.open(options);
  const prepare = (backend: AnyBackend) => prepared(backend, file, plan, size, options.progress);
  if (options.backend === "webgpu") {
    await checkGpu(plan, options); // this check comes before opening a device and loading weights
    return { backend: await prepare(await gpu()), choice: "" };
  }
  if (options.backend !== "auto") return { backend: await prepare(await cpu()), choice: "" };
  try {
    await checkGpu(plan, options);
    const trial = firstLayers(plan, TRIAL_LAYERS);
    const { faster, choice } = await race(file, trial, cpu, gpu);
    if (faster === "webgpu") return { backend: await prepare(await gpu()), choice };
    return { backend: await prepare(await cpu()), choice };
  } catch (error) {
    // A broken file fails on the CPU too, and then the CPU's error is thrown.
    return { backend: await prepare(await cpu()), choice: `auto: ${worded(error, options.words)}` };
  }
}

/** Throws if the GPU cannot run the plan, or would miss the accuracy gates in the given arithmetic. */
async function checkGpu(
  plan: Plan,
  { arithmetic = "f32", accuracy = "gated", notOnGpu }: PrepareOptions,
): Promise<void> {
  if (notOnGpu !== undefined) throw new GpuError(notOnGpu);
  // Only programs that use a GPU load its code.
  const { lower } = await import("./webgpu/lowering.ts");
  lower(plan);
  if (arithmetic === "f16" && plan.states.length > 0 && accuracy === "gated") {
    const why = "models with recurrent layers fail the accuracy gates in this arithmetic";
    throw new GpuError([
      `Cannot compute ${plan.architecture} in ${arithmetic}: ${why}; use `,
      { arithmetic: "f32" },
      ", or ",
      { accuracy: "any" },
      " as well",
    ]);
  }
}

async function prepared<B extends Backend>(
  backend: B,
  file: GgufFile,
  plan: Plan,
  size: CompileOptions,
  progress?: (done: number, total: number) => void,
): Promise<B> {
  try {
    await backend.loadWeights(file, plan, progress);
    await backend.compile(plan, size);
    return backend;
  } catch (error) {
    backend.close();
    throw error;
  }
}

/** A backend's milliseconds per decoded token and per row of a prompt. */
interface Pace {
  readonly token: number;
  readonly row: number;
}

/** Returns the pace of both backends: measures decoding in alternation, then prefill. */
async function race(
  file: GgufFile,
  trial: Plan,
  openCpu: () => Promise<KernelBackend>,
  openGpu: () => Promise<WebGpuBackend>,
): Promise<{ faster: BackendName; choice: string }> {
  const kvBlocks = trial.kv.windows.length * CHUNK_ROWS / KV_BLOCK_TOKENS;
  const size = { kvBlocks, stateSlots: 1, maxRows: CHUNK_ROWS, maxLogitRows: 1 };
  using racers = new DisposableStack();
  const open = async (backend: AnyBackend) => {
    await prepared(backend, file, trial, size);
    racers.defer(() => backend.close());
    return backend;
  };
  const gpu = await open(await openGpu());
  const cpu = await open(await openCpu());
  const tokens = await inTurns([cpu, gpu], TRIAL_STEPS, (step) => stepOf(trial, step, 1));
  const layers = trial.kv.layers.length + trial.states.length;
  if (tokens[1] > HOPELESS * tokens[0]) {
    return {
      faster: "cpu",
      choice: `auto: ${layers} layers take ${ms(tokens[0])} a token on the CPU, ${
        ms(tokens[1])
      } on ${gpu.info.isa}`,
    };
  }
  const rows = (await inTurns([cpu, gpu], TRIAL_CHUNKS, () => stepOf(trial, 0, CHUNK_ROWS)))
    .map((time) => time / CHUNK_ROWS);
  return chosen({ token: tokens[0], row: rows[0] }, { token: tokens[1], row: rows[1] }, layers, gpu.info.isa);
}

/** Returns the backend that is faster for a prompt and an answer, and the reason in one line. */
export function chosen(
  cpu: Pace,
  gpu: Pace,
  layers: number,
  gpuName: string,
): { faster: "cpu" | "webgpu"; choice: string } {
  const [onCpu, onGpu] = [cpu, gpu].map(({ token, row }) => PROMPT_TOKENS * row + ANSWER_TOKENS * token);
  const paces = (row: number, token: number) => `${ms(row)} a row of a prompt and ${ms(token)} a token`;
  return {
    faster: onGpu < onCpu ? "webgpu" : "cpu",
    choice:
      `auto: a prompt of ${PROMPT_TOKENS} tokens and ${ANSWER_TOKENS} more through ${layers} layers take ${
        ms(onCpu)
      } on the CPU (${paces(cpu.row, cpu.token)}), ${ms(onGpu)} on ${gpuName} (${paces(gpu.row, gpu.token)})`,
  };
}

function ms(milliseconds: number): string {
  return `${milliseconds.toFixed(milliseconds < 100 ? 2 : 0)} ms`;
}

/** Returns each backend's median milliseconds for a step. The backends alternate, and the first step only warms up. */
async function inTurns(
  backends: readonly AnyBackend[],
  steps: number,
  stepOf: (step: number) => StepInput,
): Promise<number[]> {
  const times = backends.map(() => [] as number[]);
  for (let step = 0; step <= steps; step++) {
    for (const [i, backend] of backends.entries()) {
      const start = performance.now();
      await backend.step(stepOf(step));
      if (step > 0) times[i].push(performance.now() - start);
    }
  }
  return times.map((all) => all.sort((a, b) => a - b)[steps >> 1]);
}

/** Returns a step of one sequence, with a greedy token for its last row. */
function stepOf(trial: Plan, position: number, rows: number): StepInput {
  const blockTable = Int32Array.from({ length: CHUNK_ROWS / KV_BLOCK_TOKENS }, (_, block) => block);
  return {
    tokens: new Int32Array(rows),
    sequences: [{
      start: 0,
      length: rows,
      cached: position,
      ...wholeTables(trial, blockTable),
      state: trial.states.length === 0
        ? undefined
        : { read: position === 0 ? undefined : 0, write: 0, saves: [] },
    }],
    logits: [greedyRequest(rows - 1)],
  };
}
