import {
  checkTogether,
  freeMemory,
  GgufError,
  type GivenTemplate,
  type LoadedEngine,
  type MeasuredModel,
  MemoryError,
  versionOf,
} from "../engine/load/load.ts";
import { type MemoryRoom, totalOf } from "../engine/load/memory_error.ts";
import { measureOnNodes } from "../engine/load/load_nodes.ts";
import { loadReloadingEngine, startOptions } from "../engine/load/load_reloading.ts";
import { modelName, modelsInFolder, modelsLeftOut } from "../engine/models/folder.ts";
import { ModelPool } from "../engine/models/pool.ts";
import type { ModelSource, OpenedModel } from "../engine/models/slot.ts";
import { ModelRefused, type Models } from "../engine/mod.ts";
import type { ModelIdentity } from "../jobs/model_identity.ts";
import { because, CompyError, loadError } from "./errors.ts";
import { identifyModel } from "./identity.ts";
import { identities } from "./batch/lines.ts";
import type { EngineLoadOptions } from "./model.ts";
import { systemReason } from "./system_errors.ts";

/** Another name of a model. */
export interface Alias {
  readonly name: string;
  readonly model: string;
}

/** The offered models, and how to load one when a request names it. */
export interface PoolOptions {
  /** Model files. Each is offered under its file name without `.gguf`. */
  readonly files: readonly string[];
  /** Folder whose present files are offered too. `files` take precedence over files of the same name. */
  readonly folder?: string;
  /** Returns aliases, given the ids of the current models. */
  readonly aliases: (ids: readonly string[]) => readonly Alias[];
  /** Returns further names of the model with this id. */
  readonly alsoNamed?: (id: string) => readonly string[];
  /** Maximum bytes of all loaded models together; by default the memory that is free at the start. */
  readonly memoryBytes?: number;
  /** Milliseconds without requests after which a model is unloaded; by default never. */
  readonly idleMs?: number;
  readonly load: Omit<EngineLoadOptions, "model">;
  /** Chat templates that replace the files' templates, by model id. */
  readonly chatTemplates?: ReadonlyMap<string, GivenTemplate>;
  /** Whether a failed engine is loaded again. */
  readonly reloads: boolean;
  readonly note: (message: string) => void;
  /** Receives each engine when it is loaded. */
  readonly describe: (loaded: LoadedEngine) => void;
}

/**
 * Returns a pool of models in one memory budget. Throws if a file cannot be read, CompyError if two have the same name.
 */
export async function openPool(options: PoolOptions): Promise<ModelPool> {
  const { files, folder, load, idleMs, note } = options;
  checkTogether(load); // refuses options that prevent loading any model
  if (folder !== undefined) {
    checkFolder(folder);
    noteLeftOut(modelsLeftOut(folder), note);
  }
  const named = files.map(namedModel);
  checkNames(named);
  const sources = () => {
    const found = folder === undefined ? [] : modelsInFolder(folder);
    return [...named, ...found.filter(({ id }) => !named.some((other) => other.id === id))];
  };
  const aliases = options.aliases(sources().map(({ id }) => id));
  const budget = options.memoryBytes ?? defaultBudget(load);
  const loading = (source: ModelSource, spareBytes = 0) => ({
    ...load,
    // An engine of one node and an engine of all nodes would not take turns.
    numa: load.numa ?? (folder !== undefined || named.length > 1 ? "off" : undefined),
    spareBytes,
    model: source.path,
    id: source.id,
    chatTemplate: options.chatTemplates?.get(source.id),
    ...(budget < Infinity ? { freeBytes: budget } : {}),
    ...(options.memoryBytes === undefined ? {} : { freeRoom: BUDGET }),
  });
  // Files are checked now, not at their first request.
  let least = 0;
  for (const source of named) {
    const measured = await measureOnNodes(startOptions(loading(source))).catch((error) => {
      if (!isForNative(error, load)) refuseModel(source, error);
    });
    least += measured === undefined ? Infinity : totalOf(measured.memory);
  }
  // Longer contexts share the memory that all models leave. A folder may get further models at any time, and a model
  // that moves to native kernels keeps its measured memory.
  const mayGrow = folder === undefined && load.coming === undefined && budget < Infinity;
  const spare = mayGrow ? Math.max(0, budget - least) / named.length : 0;
  const pool: ModelPool = new ModelPool({
    offers: () => withAliases(sources(), aliases, options.alsoNamed),
    budget,
    free: load.backend === "webgpu" ? undefined : freeMemory,
    ...(idleMs === undefined ? {} : { idleMs }),
    note,
    words: load.words,
    open: (source) =>
      openOffered((spareBytes) => loading(source, spareBytes), spare, options, () => pool.room),
  });
  return pool;
}

/** Returns whether the model is too large only for WebAssembly, while native kernels are being built. */
function isForNative(error: unknown, { coming, backend }: Omit<EngineLoadOptions, "model">): boolean {
  return error instanceof MemoryError && coming?.isPending === true && backend === undefined;
}

const BUDGET: MemoryRoom = {
  allows: [{ memoryBytes: undefined }, " allows"],
  advice: ["allow more with ", { memoryBytes: undefined }],
};

/** Throws the error with the model's name in its message. */
function refuseModel({ id }: ModelSource, error: unknown): never {
  const known = loadError(error);
  if (!(known instanceof CompyError)) throw error;
  throw new CompyError(known.code, `Model "${id}": ${known.message}`, { cause: error });
}

/** Throws CompyError if the folder does not exist. */
function checkFolder(folder: string): void {
  try {
    for (const _ of Deno.readDirSync(folder)) break;
  } catch (error) {
    const what = `Cannot offer the models in "${folder}"`;
    throw new CompyError("model_not_found", because(what, error), { cause: error });
  }
}

/** Maximum number of names that a message shows. */
const SHOWN = 5;

function noteLeftOut(names: readonly string[], note: (message: string) => void): void {
  if (names.length === 0) return;
  const shown = names.slice(0, SHOWN).map((name) => JSON.stringify(name)).join(", ");
  const more = names.length > SHOWN ? ` and ${names.length - SHOWN} more` : "";
  note(`Not offered, because names must have at most 128 letters, digits and ._+-: ${shown}${more}`);
}

/** Returns the default memory budget. A GPU's free memory is unknown, but the GPU refuses a model that does not fit. */
function defaultBudget({ backend }: Pick<EngineLoadOptions, "backend">): number {
  return backend === "webgpu" ? Infinity : freeMemory() ?? Infinity;
}

/** Opens an offered model. `spare`: bytes that it may take for a longer context, unless other programs use them. */
async function openOffered(
  loading: (spareBytes: number) => EngineLoadOptions,
  spare: number,
  { reloads, note, describe }: PoolOptions,
  room: () => number,
): Promise<OpenedModel> {
  let options = loading(spare);
  let measured = await measureOffered(options);
  if (spare > 0 && totalOf(measured.memory) > room()) {
    options = loading(0);
    measured = await measureOffered(options);
  }
  return {
    bytes: totalOf(measured.memory),
    load: async (signal) => {
      const loaded = reloads || options.coming
        ? await loadReloadingEngine({ ...options, signal }, {
          note: reloads ? note : undefined,
          moved: describe,
          measured,
          room,
        })
        : await measured.load(signal);
      describe(loaded);
      return loaded.engine;
    },
  };
}

async function measureOffered(options: EngineLoadOptions): Promise<MeasuredModel> {
  return await measureOnNodes(startOptions(options)).catch((error) => {
    if (isForNative(error, options)) {
      throw new Error("it is too large for WebAssembly, and the native kernels are still being built", {
        cause: error,
      });
    }
    throw systemReason(error) === undefined ? forPool(error) : loadError(error); // explains the system's error code
  });
}

/** Returns the error, marked if another attempt cannot help. */
function forPool(error: unknown): unknown {
  if (error instanceof MemoryError) return new ModelRefused(error, error.needed);
  return error instanceof GgufError ? new ModelRefused(error) : error;
}

function namedModel(path: string): ModelSource {
  const created = Math.floor((Deno.statSync(path).mtime?.getTime() ?? 0) / 1000);
  return { id: modelName(path), aliases: [], path, created };
}

function checkNames(sources: readonly ModelSource[]): void {
  for (const [i, { id, path }] of sources.entries()) {
    const other = sources.slice(0, i).find((source) => source.id === id);
    if (other) {
      const message = `"${other.path}" and "${path}" would both be called "${id}"; rename one of them`;
      throw new CompyError("invalid_request", message);
    }
  }
}

/** Returns the models with aliases. A model's own name takes precedence over another model's alias. */
function withAliases(
  sources: readonly ModelSource[],
  aliases: readonly Alias[],
  alsoNamed: PoolOptions["alsoNamed"] = () => [],
): ModelSource[] {
  const ids = new Set(sources.map(({ id }) => id));
  return sources.map((source) => {
    const own = aliases.filter(({ model }) => model === source.id).map(({ name }) => name);
    return { ...source, aliases: [...own, ...alsoNamed(source.id)].filter((name) => !ids.has(name)) };
  });
}

/** Returns the identities of the models that batch lines name. For a model that is not loaded, it reads the header. */
export function servedIdentities(
  models: Models,
  load: Omit<EngineLoadOptions, "model">,
  chatTemplates?: ReadonlyMap<string, GivenTemplate>,
) {
  const known = new Map<string, Promise<ModelIdentity>>();
  return identities(models, ({ id, path, engine }) => {
    const backend = engine?.model.backend ?? load.backend;
    const version = `${id} ${path} ${versionOf({ ...load, model: path })} ${backend}`;
    const found = known.get(version) ?? identifyModel({
      ...load,
      path,
      backend: backend === "auto" ? "cpu" : backend,
      chatTemplate: chatTemplates?.get(id),
    }).catch((error) => {
      throw forPool(error);
    });
    known.set(version, found);
    found.catch(() => known.delete(version));
    return found;
  });
}
