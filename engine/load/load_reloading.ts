import { type BackendName, DeviceLost } from "../backend/backend.ts";
import { defaultBackend } from "../backend/choose.ts";
import type { ComingKernels } from "./coming_kernels.ts";
import { freeMemory } from "./free_memory.ts";
import { checkUnchanged, type LoadedEngine, type MeasuredModel, versionOf } from "./load.ts";
import { loadOnNodes, measureOnNodes } from "./load_nodes.ts";
import type { LoadOptions } from "./options.ts";
import { MemoryError, totalOf } from "./memory_error.ts";
import { ReloadingEngine } from "../loop/reloading.ts";
import { EngineError, worded } from "../api/errors.ts";

/** Options for an engine that may be reloaded, or moved to native kernels. */
export interface LivingOptions {
  /** Receives the failures that cause a reload. Without it, the engine is never reloaded. */
  readonly note?: (message: string) => void;
  /** Called with the engine after it has moved to native kernels. */
  readonly moved?: (loaded: LoadedEngine) => void;
  /** The model as measured with startOptions(), if its header was already read. */
  readonly measured?: MeasuredModel;
  /** Returns the bytes that a second copy of the model may take; by default the free memory. */
  readonly room?: () => number | undefined;
}

/**
 * Returns the options that an engine starts with. While native kernels are still being built, it starts in
 * WebAssembly as one engine, stores no prompts and takes no images: the native engine changes that later.
 */
export function startOptions(options: LoadOptions): LoadOptions {
  if (options.coming === undefined || options.backend !== undefined) return options;
  const backend = defaultBackend();
  if (backend !== "wasm") return { ...options, backend };
  return { ...options, backend, promptCache: undefined, mmproj: undefined, numa: "off" };
}

/**
 * Loads an engine as loadEngine does, for a long-running process. When the engine fails, it is reloaded from the same
 * file on the same backend, and `note` receives a message. With "auto", the CPU replaces a lost GPU. See
 * ReloadingEngine.
 *
 * With `options.coming` the engine moves to the native kernels when they are built.
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

/** Loads a model's first engine and each engine that replaces it. */
class EngineLoader {
  readonly #version: string;
  readonly #note: (message: string) => void;
  /** Options for the next load of the engine. */
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
      this.#current = await loadOnNodes({ ...this.#options, signal });
      return this.#current.engine;
    };
    const once = this.living.note === undefined ? { times: 0 } : {};
    this.#keep(this.#current.backend.info.name as BackendName);
    const { words } = this.given;
    this.#engine = new ReloadingEngine(this.#current.engine, { load, note: this.#note, words, ...once });
    return this.#facade();
  }

  /**
   * Moves the engine to native kernels when they are built. Resolves after the move, or if they cannot be built. Never
   * rejects.
   */
  async goOver(coming: ComingKernels): Promise<void> {
    if (this.given.backend !== undefined || this.#options.backend !== "wasm") return;
    const isHere = await coming.arrived;
    // If there will be no native kernels, WebAssembly stores the prompts.
    const backend = isHere ? "cpu" : this.given.promptCache ? "wasm" : undefined;
    if (backend === undefined) return;
    try {
      await coming.inTurn(() => this.#replace(backend));
    } catch (error) {
      if (this.#engine.state === "draining") return;
      const reason = worded(error, this.given.words);
      this.#note(
        `Cannot load ${this.#engine.model.id} again with ${backend}, so it keeps its present backend: ${reason}`,
      );
    }
  }

  async #first(): Promise<LoadedEngine> {
    const { coming, signal } = this.given;
    const { measured } = this.living;
    const start = performance.now();
    const isOld = measured?.backend === "wasm" && this.#options.backend !== "wasm";
    try {
      const model = measured && !isOld ? measured : await measureOnNodes(this.#options);
      return { ...await model.load(signal), loadMs: performance.now() - start };
    } catch (error) {
      const isTooLarge = error instanceof MemoryError && this.#options.backend === "wasm";
      if (!isTooLarge || !coming || this.given.backend !== undefined) throw error;
      coming.note(
        "The model is too large for WebAssembly: it is loaded when the native kernels are built",
      );
      if (!await coming.arrived) throw error;
      this.#options = startOptions(this.given);
      return await loadOnNodes(this.#options);
    }
  }

  /** Fixes the backend of later loads: "auto" must not choose another one, because answers must stay the same. */
  #keep(backend: BackendName): void {
    this.#options = { ...this.#options, backend, progress: undefined };
  }

  async #replace(backend: BackendName): Promise<void> {
    checkUnchanged(this.given, this.#version, "again: the file has changed since it was loaded first");
    const free = this.living.room ? this.living.room() : freeMemory();
    // Free memory after closing the first engine.
    const later = free === undefined ? undefined : free + this.#current.memory.weights;
    const options = { ...this.given, backend, progress: undefined, signal: undefined };
    const bounded = { ...options, freeBytes: this.given.freeBytes ?? later };
    const measured = await measureOnNodes(bounded);
    // KV cache for a longer context is not resident yet, so it is not counted.
    const least = await measureOnNodes({ ...bounded, spareBytes: 0 });
    const alongside = free === undefined || totalOf(least.memory) <= free;
    let next: LoadedEngine | undefined;
    await this.#engine.moveTo(async (signal) => (next = await measured.load(signal)).engine, alongside);
    this.#current = next!;
    this.#options = options;
    this.#keep(backend);
    if (backend === "cpu") this.living.moved?.(this.#facade());
  }

  /** Returns an engine record whose figures always describe the present engine. */
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
      get nodes() {
        return now().nodes;
      },
      get loadMs() {
        return now().loadMs;
      },
      get memory() {
        return now().memory;
      },
      get cut() {
        return now().cut;
      },
      get kvTokens() {
        return now().kvTokens;
      },
    };
  }
}

/** Returns whether the failure, of an engine or of a load, is the loss of a device. */
function isLoss(failure: unknown): boolean {
  return failure instanceof DeviceLost || (failure instanceof EngineError && failure.code === "device_lost");
}
