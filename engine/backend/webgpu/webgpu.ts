import type { GgufFile } from "../../gguf/types.ts";
import type { MachineLimits } from "../../plan/cost.ts";
import type { Plan, PlanTensor } from "../../plan/plan.ts";
import {
  type Abilities,
  type Arithmetic,
  type Backend,
  type BackendInfo,
  type CompileOptions,
  DeviceLost,
  type StepInput,
  type StepOutput,
  StepStopped,
} from "../backend.ts";
import { LOSS_MS } from "./device/device_loss.ts";
import { type Gpu, openGpu } from "./device/gpu.ts";
import { copyBandwidth } from "./device/limits.ts";
import { GpuMemory } from "./device/memory.ts";
import { PassClock, passTimes } from "./device/pass_clock.ts";
import { Pipelines } from "./device/pipelines.ts";
import { ReadBack } from "./device/read_back.ts";
import { GpuError } from "./errors.ts";
import { missingFor } from "./kernels/matmul.ts";
import { planeRowBytes } from "./kernels/planes.ts";
import { lower } from "./lowering.ts";
import { modelDispatches } from "./ops/registry.ts";
import type { Program } from "./program.ts";
import { Answers } from "./step/answers.ts";
import { Costs, type Piece } from "./step/costs.ts";
import type { Dispatch, StepProfile, StepSize, SubmitTime } from "./step/dispatch.ts";
import { DispatchWriter } from "./step/dispatch_writer.ts";
import type { StepBuffers } from "./step/layout.ts";
import { Recorder } from "./step/recorder.ts";
import { makeStepBuffers, writeStep } from "./step/step_buffers.ts";
import { decodeAnswers, encodeStep, sizeOf, type StepData } from "./step/step_data.ts";
import { StepTimes } from "./step/step_times.ts";
import { cutStep, fittingRows, Submits } from "./step/submits.ts";
import type { TuningTable } from "./tuning/tuning.ts";
import { readTunings } from "./tuning/tuning_file.ts";
import { WeightLoader, type Weights } from "./weights/weights.ts";

export interface WebGpuOptions {
  /** Arithmetic of matrix products; f32 by default. */
  readonly arithmetic?: Arithmetic;
  /** Receives the message of a problem that does not stop the backend. */
  readonly warn?: (message: string) => void;
}

/** Timed passes of a step: enough for one of each kernel of the largest models. */
const TIMED_PASSES = 64;

/** The buffers and dispatches of a compiled plan. */
interface Compiled {
  readonly options: CompileOptions;
  readonly buffers: StepBuffers;
  readonly answers: Answers;
  readonly model: readonly Dispatch[];
  readonly vocabSize: number;
}

/** Runs plans on a GPU through WebGPU. It cuts a step into the fewest submits that are each short. */
export class WebGpuBackend implements Backend {
  readonly info: BackendInfo;
  readonly abilities: Abilities = { draws: this, pools: false };
  readonly #arithmetic: Arithmetic;
  readonly #memory: GpuMemory;
  readonly #pipelines: Pipelines;
  readonly #recorder: Recorder;
  readonly #readBack: ReadBack;
  readonly #submits: Submits;
  /** Times kernels in steps of several submits, if the device supports timestamps. */
  #clock: PassClock | undefined;
  #program: Program | undefined;
  #weights: Weights | undefined;
  #compiled: Compiled | undefined;
  /** The longest context of the last step. */
  #context = 0;
  /** Rows for a prefill step; undefined until a prefill step was measured again. */
  #stepRows: number | undefined;
  #stopped = false;
  /** Wakes a step that waits for a mask. */
  #onStop = () => {};
  #closed = false;
  /** The error that all further calls throw, after a failure other than a lost device. */
  #failure: GpuError | undefined;
  readonly #lost = Promise.withResolvers<DeviceLost>();

  /** Takes ownership of the device. Throws GpuError if it lacks what the arithmetic needs. */
  constructor(
    private readonly gpu: Gpu,
    options: WebGpuOptions = {},
    private readonly tunings: TuningTable = new Map(),
    costs = new Costs(),
  ) {
    const { device, kernels, loss, name } = gpu;
    this.#arithmetic = options.arithmetic ?? "f32";
    const missing = missingFor(this.#arithmetic, kernels);
    if (missing) {
      throw new GpuError(`Cannot compute in ${this.#arithmetic}: ${name} has no ${missing}; use f32`);
    }
    this.info = { name: "webgpu", isa: `${name}, ${this.#arithmetic}`, threads: 1 };
    this.#memory = new GpuMemory(device, loss);
    this.#pipelines = new Pipelines(device, loss);
    this.#recorder = new Recorder(device, loss, this.#pipelines, this.#memory);
    this.#readBack = new ReadBack(this.#memory, gpu.synchronousMap, loss);
    this.#submits = new Submits(gpu, this.#recorder, costs);
    loss.happens.then((error) => {
      if (!this.#closed) this.#lost.resolve(error);
    });
    device.addEventListener("uncapturederror", (event) => {
      event.preventDefault();
      const { error } = event as GPUUncapturedErrorEvent;
      const full = error instanceof GPUOutOfMemoryError;
      this.#fail(full ? "The GPU is out of memory" : `The GPU refused a step: ${error.message}`);
    });
  }

  /**
   * Opens the best adapter with its stored tunings. Throws GpuError if there is none or it lacks a requested feature.
   */
  static async open(options: WebGpuOptions = {}): Promise<WebGpuBackend> {
    const gpu = await openGpu();
    return new WebGpuBackend(gpu, options, await readTunings(gpu, options.warn));
  }

  get lost(): Promise<DeviceLost> {
    return this.#lost.promise;
  }

  /** Bytes allocated on the GPU. */
  get bytes(): number {
    return this.#memory.bytes;
  }

  /** Returns the bytes of a matrix on the GPU; 0 for a vector. */
  tensorBytes(t: PlanTensor): number {
    return t.kind === "vector"
      ? 0
      : t.rows * planeRowBytes(t.info.type, t.columns).reduce((a, b) => a + b, 0);
  }

  /**
   * Measures the speed of copies within the GPU's memory, reads and writes both counted. Arithmetic speed is not
   * measured.
   */
  async measureLimits(): Promise<MachineLimits> {
    this.#check();
    const readGbps = await copyBandwidth(this.gpu, this.#memory);
    return { readGbps, int8Gops: Infinity, f32Gflops: Infinity };
  }

  async loadWeights(
    file: GgufFile,
    plan: Plan,
    progress?: (done: number, total: number) => void,
  ): Promise<void> {
    this.#program = lower(plan);
    const loader = new WeightLoader(this.gpu, this.#memory, file, plan, progress);
    this.#weights = await loader.load(this.#program);
    this.#check();
  }

  async compile(plan: Plan, options: CompileOptions): Promise<void> {
    const { device, bindingBytes } = this.gpu;
    const program = this.#program!;
    const buffers = await makeStepBuffers(device, this.#memory, plan, program, options, bindingBytes);
    if (this.gpu.timestamps) {
      this.#clock ??= await PassClock.make(device, this.gpu.loss, this.#memory, TIMED_PASSES);
    }
    const writer = new DispatchWriter({
      device,
      memory: this.#memory,
      kernels: this.gpu.kernels,
      arithmetic: this.#arithmetic,
      tunings: this.tunings,
      plan,
      program,
      weights: this.#weights!,
      buffers,
    });
    const model = await modelDispatches(writer);
    const answers = await Answers.make(writer);
    this.#compiled = { options, buffers, answers, model, vocabSize: plan.vocabSize };
    await this.#pipelines.compile([...model, ...answers.dispatches].flatMap(({ kernels }) => kernels));
    this.#check();
  }

  async step(input: StepInput): Promise<StepOutput> {
    return (await this.decode(input, 1))[0];
  }

  /**
   * Runs steps whose tokens stay on the GPU: each drawn token is the next step's row. A stop discards all of these
   * steps.
   */
  async decode(input: StepInput, steps: number): Promise<StepOutput[]> {
    this.#check();
    this.#stopped = false;
    const data = this.#encode(input);
    const size = sizeOf(input, data, steps);
    this.#context = size.context;
    if (size.step > size.sequences) this.#stepRows = undefined;
    let answers: Uint32Array<ArrayBuffer>;
    try {
      answers = await this.#run(data, size, steps);
    } catch (error) {
      this.#submits.forget();
      throw await this.#explain(error);
    }
    this.#check();
    if (this.#stopped) {
      this.#submits.forget();
      throw new StepStopped("The step was stopped");
    }
    return Array.from({ length: steps }, (_, i) => {
      const words = answers.slice(i * data.answerWords, (i + 1) * data.answerWords);
      return { rows: decodeAnswers(words, input) };
    });
  }

  /**
   * Number of rows with which a prefill step takes about a second by past measurements: whole tiles, at most 512. The
   * bits of a result do not depend on it.
   */
  get stepRows(): number {
    const { options: { maxRows }, buffers: { layout: { tileRows } }, model } = this.#compiled!;
    const most = { maxRows, tileRows, context: this.#context };
    return this.#stepRows ??= fittingRows(model, most, this.#submits.costs);
  }

  #encode(input: StepInput): StepData {
    const { vocabSize, options, buffers } = this.#compiled!;
    const [rows, logits] = [input.tokens.length, input.logits.length];
    if (rows > options.maxRows || logits > options.maxLogitRows) {
      throw new RangeError(
        `A step must have at most ${options.maxRows} rows, ${options.maxLogitRows} of them with logits ` +
          `(got ${rows}, ${logits})`,
      );
    }
    return encodeStep(input, vocabSize, buffers.layout);
  }

  requestStop(): void {
    this.#stopped = true;
    this.#onStop();
  }

  /**
   * Runs a step twice, the second time with timestamps around each dispatch. Throws GpuError if the GPU has no
   * timestamps.
   */
  async profile(input: StepInput): Promise<StepProfile> {
    if (!this.gpu.timestamps) throw new GpuError(`Cannot profile: ${this.info.isa} has no timestamps`);
    this.#check();
    const data = this.#encode(input);
    await this.#upload(data);
    const { model, answers } = this.#compiled!;
    const [dispatches, size] = [[...model, ...answers.choosing(data)], sizeOf(input, data, 1)];
    const start = performance.now();
    await this.#submits.send(cutStep(dispatches, size, this.#submits.costs), () => false);
    const recordMs = performance.now() - start;
    const times = await this.#recorder.time(dispatches, size);
    this.#submits.forget();
    this.#check();
    return { recordMs, dispatches: times };
  }

  /**
   * Runs a step, cut as in `step`, without reading its answer. Returns the time of each submit. Throws GpuError if the
   * GPU has no timestamps.
   */
  async submitTimes(input: StepInput): Promise<SubmitTime[]> {
    if (!this.gpu.timestamps) throw new GpuError(`Cannot time submits: ${this.info.isa} has no timestamps`);
    this.#check();
    const data = this.#encode(input);
    await this.#upload(data);
    const size = sizeOf(input, data, 1);
    this.#context = size.context;
    this.#stepRows = undefined;
    const { model, answers } = this.#compiled!;
    const submits = cutStep([...model, ...answers.choosing(data)], size, this.#submits.costs);
    const { device, loss } = this.gpu;
    // Number of timestamps for one pass per piece.
    const passes = submits.reduce((sum, pieces) => sum + pieces.length, 0);
    const clock = await PassClock.make(device, loss, this.#memory, passes);
    try {
      const stepTimes = new StepTimes(clock, this.#submits.costs, true);
      await this.#submits.send(submits, () => false, undefined, stepTimes);
      await loss.or(device.queue.onSubmittedWorkDone());
      const times = await clock.read();
      this.#submits.settled(times);
      this.#check();
      return stepTimes.submits(times);
    } finally {
      clock.free();
    }
  }

  close(): void {
    this.#closed = true;
    this.#memory.freeAll();
    this.gpu.device.destroy();
  }

  /**
   * Submits steps as soon as each is recorded, then waits for all answers. `requestStop` ends the run between submits.
   */
  async #run(data: StepData, size: StepSize, steps: number): Promise<Uint32Array<ArrayBuffer>> {
    const bytes = 4 * data.answerWords;
    await this.#readBack.reserve(steps * bytes + (this.#clock?.mostBytes ?? 0));
    await this.#upload(data);
    const { model, answers } = this.#compiled!;
    const { costs } = this.#submits;
    const stopped = () => this.#stopped;
    const nothing = new Uint32Array(0);
    let times: StepTimes | undefined;
    if (data.masks.length > 0) {
      const submits = cutStep(model, size, costs);
      times = this.#timesOf(submits);
      if (!await this.#submits.send(submits, stopped, undefined, times)) return nothing;
      if (!await this.#uploadMasks(data)) return nothing;
    }
    const dispatches = [...data.masks.length > 0 ? [] : model, ...answers.choosing(data)];
    for (let i = 0; i < steps; i++) {
      // The GPU computes a step while the next one is recorded.
      const after = (encoder: GPUCommandEncoder) => {
        if (bytes > 0) this.#readBack.copy(encoder, answers.buffers.answers, bytes, i * bytes);
        if (i === steps - 1) this.#copyTimes(encoder, times, steps * bytes);
      };
      const submits = cutStep(dispatches, size, costs);
      if (i === 0) times ??= this.#timesOf(submits);
      if (!await this.#submits.send(submits, stopped, after, i === 0 ? times : undefined)) return nothing;
    }
    const read = await this.#read(steps * bytes + (times?.clock.bytes ?? 0));
    this.#submits.settled(times && passTimes(read.subarray(steps * data.answerWords)));
    return read;
  }

  /** Selects the passes to time in a step. A step of one submit is not timed, because its kernels are never cut. */
  #timesOf(submits: readonly (readonly Piece[])[]): StepTimes | undefined {
    return this.#clock && submits.length > 1 ? new StepTimes(this.#clock, this.#submits.costs) : undefined;
  }

  /** Records a copy of the timestamps to offset `at` of the read-back buffer. */
  #copyTimes(encoder: GPUCommandEncoder, times: StepTimes | undefined, at: number): void {
    if (!times || times.clock.bytes === 0) return;
    times.clock.resolve(encoder);
    this.#readBack.copy(encoder, times.clock.resolved, times.clock.bytes, at);
  }

  /** Returns the copied words after all submitted work is done. */
  async #read(bytes: number): Promise<Uint32Array<ArrayBuffer>> {
    if (bytes > 0) return await this.#readBack.read(bytes, this.#submits.remainingMs);
    await this.gpu.loss.or(this.gpu.device.queue.onSubmittedWorkDone());
    return new Uint32Array(0);
  }

  /** Returns the error to report for a failed step. The device reports its loss some time after the call that fails. */
  async #explain(error: unknown): Promise<unknown> {
    if (error instanceof RangeError || error instanceof GpuError || error instanceof DeviceLost) {
      return error;
    }
    const lost = await this.gpu.loss.within(LOSS_MS);
    const reason = error instanceof Error ? error.message : String(error);
    return lost ?? this.#failure ?? new GpuError(`The GPU refused a step: ${reason}`, { cause: error });
  }

  async #upload(data: StepData): Promise<void> {
    const { buffers, answers } = this.#compiled!;
    writeStep(this.gpu.device, buffers, data);
    await answers.upload(data);
  }

  /** Writes grammar masks as they arrive, while the GPU computes logits. Returns false if the step is to stop first. */
  async #uploadMasks(data: StepData): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<"stop">();
    this.#onStop = () => resolve("stop");
    if (this.#stopped) return false;
    return await this.#compiled!.answers.uploadMasks(data, promise, this.gpu.loss);
  }

  #fail(message: string): void {
    this.#failure ??= new GpuError(message);
  }

  /** Throws if the device has failed. */
  #check(): void {
    const failure = this.gpu.loss.error ?? this.#failure;
    if (failure) throw failure;
  }
}
