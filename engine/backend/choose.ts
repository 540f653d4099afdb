import type { GgufFile } from "../gguf/types.ts";
import { firstLayers } from "../plan/layers.ts";
import type { Plan } from "../plan/plan.ts";
import {
  type Backend,
  type BackendName,
  type CompileOptions,
  greedyRequest,
  type StepInput,
} from "./backend.ts";
import { CpuBackend, type CpuOptions } from "./cpu/cpu.ts";
import { WasmBackend } from "./wasm/wasm.ts";
import { GpuError } from "./webgpu/errors.ts";
import { lower } from "./webgpu/lowering.ts";
import { WebGpuBackend, type WebGpuOptions } from "./webgpu/webgpu.ts";

export type AnyBackend = CpuBackend | WasmBackend | WebGpuBackend;

/** Backends of the kernels' formats and arithmetic: those that run every plan. */
export type KernelBackend = CpuBackend | WasmBackend;

export interface PrepareOptions extends CpuOptions, WebGpuOptions {
  /** By default "cpu", or "wasm" where there are no native kernels. */
  readonly backend?: BackendName;
  /** Why it cannot be the GPU, in words for who asked for it; it can where this is not given. */
  readonly notOnGpu?: string;
  readonly progress?: (done: number, total: number) => void;
}

/** A backend with a model loaded and compiled. */
export interface Prepared {
  readonly backend: AnyBackend;
  /** Why "auto" chose it; empty where there was no choice. */
  readonly choice: string;
}

/** How fast native kernels are beside those in WebAssembly: docs/WASM.md has the figures. */
const NATIVE_SPEED = "twice";

/** Layers of the model that "auto" measures, and steps of each backend. */
const TRIAL_LAYERS = 4;
const TRIAL_STEPS = 9;

/**
 * The backend that is meant where none is asked for: native kernels or, where those cannot be had, the same as WebAssembly. `warn`
 * is told why.
 */
export function defaultBackend(warn?: (message: string) => void): "cpu" | "wasm" {
  const missing = CpuBackend.missing();
  if (!missing) return "cpu";
  warn?.(
    `No native kernels: ${missing}. Computing in WebAssembly instead: native ones would be about ${NATIVE_SPEED} as fast`,
  );
  return "wasm";
}

/** Opens the native kernels or those in WebAssembly. Throws KernelError and WasmError. */
async function openKernels({ backend, ...options }: PrepareOptions): Promise<KernelBackend> {
  const kind = backend === "cpu" || backend === "wasm" ? backend : defaultBackend();
  return kind === "wasm" ? await WasmBackend.open(options) : new CpuBackend(options);
}

/** Bytes of each of the plan's tensors as the kernels pack them; 0 for vectors. Throws KernelError and WasmError. */
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
 * Opens a backend, loads the weights and compiles the plan. "auto" takes the GPU only where it decodes faster than the
 * CPU, and the CPU where anything is wrong with the GPU. Throws KernelError and GpuError.
 */
export async function prepareBackend(
  file: GgufFile,
  plan: Plan,
  size: CompileOptions,
  options: PrepareOptions,
): Promise<Prepared> {
  const cpu = () => openKernels(options);
  const gpu = () => WebGpuBackend.open(options);
  const prepare = (backend: AnyBackend) => prepared(backend, file, plan, size, options.progress);
  if (options.backend === "webgpu") {
    checkGpu(plan, options); // before a device is opened and weights are loaded
    return { backend: await prepare(await gpu()), choice: "" };
  }
  if (options.backend !== "auto") return { backend: await prepare(await cpu()), choice: "" };
  try {
    checkGpu(plan, options);
    const trial = firstLayers(plan, TRIAL_LAYERS);
    const { faster, choice } = await race(file, trial, cpu, gpu);
    if (faster === "webgpu") return { backend: await prepare(await gpu()), choice };
    return { backend: await prepare(await cpu()), choice };
  } catch (error) {
    // A broken file is an error on the CPU too, and then the one to tell.
    const reason = error instanceof Error ? error.message : String(error);
    return { backend: await prepare(await cpu()), choice: `auto: ${reason}` };
  }
}

/** Throws for a plan that the GPU cannot run, or not in the arithmetic without leaving its gates of accuracy. */
function checkGpu(plan: Plan, { arithmetic = "f32", notOnGpu }: PrepareOptions): void {
  if (notOnGpu !== undefined) throw new GpuError(notOnGpu);
  lower(plan);
  if (arithmetic !== "f32" && plan.states.length > 0) {
    throw new GpuError(
      `Cannot compute ${plan.architecture} in ${arithmetic}: models with recurrent layers leave the gates of accuracy in it; ` +
        "use --arithmetic f32",
    );
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

/** Decodes the trial on both, in turns. */
async function race(
  file: GgufFile,
  trial: Plan,
  openCpu: () => Promise<KernelBackend>,
  openGpu: () => Promise<WebGpuBackend>,
): Promise<{ faster: BackendName; choice: string }> {
  const size = { kvBlocks: 1, stateSlots: 1, maxRows: 1, maxLogitRows: 1 };
  using racers = new DisposableStack();
  const open = async (backend: AnyBackend) => {
    await prepared(backend, file, trial, size);
    racers.defer(() => backend.close());
    return { backend, times: [] as number[] };
  };
  const webgpu = await open(await openGpu());
  const cpu = await open(await openCpu());
  for (let step = 0; step <= TRIAL_STEPS; step++) {
    for (const { backend, times } of [cpu, webgpu]) {
      const start = performance.now();
      await backend.step(decodeStep(trial, step));
      if (step > 0) times.push(performance.now() - start); // the first only warms up
    }
  }
  const [c, g] = [cpu, webgpu].map(({ times }) => times.sort((a, b) => a - b)[TRIAL_STEPS >> 1]);
  const layers = `${trial.kv.layers.length + trial.states.length} layers take ${
    c.toFixed(2)
  } ms a token on the CPU`;
  return {
    faster: g < c ? "webgpu" : "cpu",
    choice: `auto: ${layers}, ${g.toFixed(2)} ms on ${webgpu.backend.info.isa}`,
  };
}

function decodeStep(trial: Plan, position: number): StepInput {
  return {
    tokens: Int32Array.of(0),
    sequences: [{
      start: 0,
      length: 1,
      cached: position,
      blockTable: Int32Array.of(0),
      state: trial.states.length === 0
        ? undefined
        : { read: position === 0 ? undefined : 0, write: 0, saves: [] },
    }],
    logits: [greedyRequest(0)],
  };
}
