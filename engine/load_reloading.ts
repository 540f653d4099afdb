import { type BackendName, DeviceLost } from "./backend/backend.ts";
import { defaultBackend } from "./backend/choose.ts";
import type { ComingKernels } from "./coming_kernels.ts";
import { freeMemory } from "./free_memory.ts";
import {
  checkUnchanged,
  type LoadedEngine,
  loadEngine,
  type LoadOptions,
  type MeasuredModel,
  measureModel,
  versionOf,
} from "./load.ts";
import { MemoryError, totalOf } from "./memory_error.ts";
import { ReloadingEngine } from "./reloading.ts";
import { EngineError } from "./types.ts";

/** How an engine lives on. */
export interface LivingOptions {
  /** Told of failures after which the engine is loaded again; without it none is. */
  readonly note?: (message: string) => void;
  /** Told of the engine that has gone over to native kernels. */
  readonly moved?: (loaded: LoadedEngine) => void;
  /** Of the options that startOptions() gives, where the header was read before. */
  readonly measured?: MeasuredModel;
  /** Bytes that a second copy of the model may take; by default what is free. */
  readonly room?: () => number | undefined;
}

/**
 * The options with which an engine starts. Where native kernels are still to come it starts in WebAssembly, and keeps no prompts on a
 * disk: the native engine does, under another name.
 */
export function startOptions(options: LoadOptions): LoadOptions {
  if (options.coming === undefined || options.backend !== undefined) return options;
  const backend = defaultBackend();
  return { ...options, backend, promptCache: backend === "wasm" ? undefined : options.promptCache };
}

/**
 * As loadEngine, for a process that lives on: when the engine fails it is loaded again, from the same file and on the same
 * backend, and `note` is told. But what was "auto" goes on without a GPU that was lost. See ReloadingEngine. With
 * `options.coming` the engine goes over to native kernels when they have come.
 */
export async function loadReloadingEngine(
  options: LoadOptions,
  living: LivingOptions,
): Promise<LoadedEngine> {
  const { coming } = options;
  const done = coming?.follow();
  try {
    const life = new EngineLoader(options, living);
    const loaded = await life.start();
    if (coming) life.goOver(coming).finally(done);
    return loaded;
  } catch (error) {
    done?.();
    throw error;
  }
}

/** Loads the engines of one model, one after the other. */
class EngineLoader {
  readonly #version: string;
  readonly #note: (message: string) => void;
  /** With what the next one is loaded. */
  #options: LoadOptions;
  #current!: LoadedEngine;
  #engine!: ReloadingEngine;

  constructor(private readonly given: LoadOptions, private readonly living: LivingOptions) {
    this.#version = versionOf(given);
    this.#options = startOptions(given);
    this.#note = living.note ?? ((message) => given.coming?.note(message));
  }

  async start(): Promise<LoadedEngine> {
    this.#current = await this.#first();
    const load = async (signal: AbortSignal, failure: unknown) => {
      checkUnchanged(this.given, this.#version, "again: the file has changed since it was loaded first");
      if (this.given.backend === "auto" && this.#options.backend === "webgpu" && isLoss(failure)) {
        const backend = defaultBackend();
        this.#options = { ...this.#options, backend };
        this.#note(`auto: the GPU was lost, so the model is computed on the CPU from here on (${backend})`);
      }
      this.#current = await loadEngine({ ...this.#options, signal });
      return this.#current.engine;
    };
    const once = this.living.note === undefined ? { times: 0 } : {};
    this.#keep(this.#current.backend.info.name as BackendName);
    this.#engine = new ReloadingEngine(this.#current.engine, { load, note: this.#note, ...once });
    return this.#facade();
  }

  /** Resolves when the engine computes natively, or will not. Never rejects. */
  async goOver(coming: ComingKernels): Promise<void> {
    if (this.given.backend !== undefined || this.#options.backend !== "wasm") return;
    const isHere = await coming.arrived;
    // Without native kernels it is WebAssembly that keeps prompts.
    const backend = isHere ? "cpu" : this.given.promptCache ? "wasm" : undefined;
    if (backend === undefined) return;
    try {
      await coming.inTurn(() => this.#replace(backend));
    } catch (error) {
      if (this.#engine.state === "draining") return;
      const reason = error instanceof Error ? error.message : String(error);
      this.#note(
        `Cannot load ${this.#engine.model.id} again with ${backend}, so it goes on as before: ${reason}`,
      );
    }
  }

  async #first(): Promise<LoadedEngine> {
    const { coming, signal } = this.given;
    const { measured } = this.living;
    const start = performance.now();
    const isOld = measured?.backend === "wasm" && this.#options.backend !== "wasm";
    try {
      const model = measured && !isOld ? measured : await measureModel(this.#options);
      return { ...await model.load(signal), loadMs: performance.now() - start };
    } catch (error) {
      const isTooLarge = error instanceof MemoryError && this.#options.backend === "wasm";
      if (!isTooLarge || !coming || this.given.backend !== undefined) throw error;
      coming.note(
        "The model is too large for WebAssembly: it is loaded when the native kernels are built",
      );
      if (!await coming.arrived) throw error;
      this.#options = startOptions(this.given);
      return await loadEngine(this.#options);
    }
  }

  /** From here on engines are loaded on this backend: not on "auto" again, since answers must stay the same. */
  #keep(backend: BackendName): void {
    const { contextLength } = this.#current.engine.model;
    this.#options = { ...this.#options, backend, contextLength, progress: undefined };
  }

  async #replace(backend: BackendName): Promise<void> {
    checkUnchanged(this.given, this.#version, "again: the file has changed since it was loaded first");
    const free = this.living.room ? this.living.room() : freeMemory();
    // What it takes once the first engine is gone.
    const later = free === undefined ? undefined : free + this.#current.memory.weights;
    const options = { ...this.given, backend, progress: undefined, signal: undefined };
    const measured = await measureModel({ ...options, freeBytes: this.given.freeBytes ?? later });
    const alongside = free === undefined || totalOf(measured.memory) <= free;
    let next: LoadedEngine | undefined;
    await this.#engine.moveTo(async (signal) => (next = await measured.load(signal)).engine, alongside);
    this.#current = next!;
    this.#options = options;
    this.#keep(backend);
    if (backend === "cpu") this.living.moved?.(this.#facade());
  }

  /** What is said of the engine is true of the one that computes now. */
  #facade(): LoadedEngine {
    const now = () => this.#current;
    return {
      engine: this.#engine,
      get backend() {
        return now().backend;
      },
      get choice() {
        return now().choice;
      },
      get loadMs() {
        return now().loadMs;
      },
      get memory() {
        return now().memory;
      },
      get kvTokens() {
        return now().kvTokens;
      },
    };
  }
}

/** Whether it is for the loss of a device that an engine failed, or could not be loaded. */
function isLoss(failure: unknown): boolean {
  return failure instanceof DeviceLost || (failure instanceof EngineError && failure.code === "device_lost");
}
