import {
  fileVersion,
  freeMemory,
  type LoadedEngine,
  type LoadOptions,
  loadReloadingEngine,
  measureModel,
} from "../engine/load.ts";
import { modelName, modelsInFolder } from "../engine/models/folder.ts";
import { ModelPool } from "../engine/models/pool.ts";
import type { ModelSource, OpenedModel } from "../engine/models/slot.ts";
import type { Models } from "../engine/types.ts";
import type { ModelIdentity } from "../jobs/model_identity.ts";
import { identifyModel } from "../lib/identity.ts";
import { identities } from "../lib/lines.ts";
import { modelPath } from "./model.ts";
import { UsageError } from "./flags.ts";
import type { ServeSettings } from "./serve_settings.ts";

/** Whether the server loads models as they are asked for, and not one at its start. */
export function hasSeveral({ values: { model, models, memoryMb, idleUnload } }: ServeSettings): boolean {
  return model.length > 1 || [models, memoryMb, idleUnload].some((value) => value !== undefined);
}

/** The other names of the only model. */
export function aliasesOfOne({ values: { alias } }: ServeSettings, id: string): string[] {
  return readAliases(alias, [id]).map(({ name }) => name);
}

export interface PoolHost {
  readonly load: Omit<LoadOptions, "model">;
  readonly reloads: boolean;
  readonly note: (message: string) => void;
  /** Told what was loaded. */
  readonly describe: (loaded: LoadedEngine) => void;
}

/** Several models in one budget of memory. Throws where one that is named cannot be read, or two have the same name. */
export async function openPool(settings: ServeSettings, host: PoolHost): Promise<ModelPool> {
  const { values: { model, models: folder, alias, memoryMb, idleUnload } } = settings;
  const { load, note } = host;
  if (load.backend === "auto") {
    throw new UsageError("--backend auto measures one model at the start; with several say cpu or webgpu");
  }
  const named = model.map((path) => namedModel(path));
  checkNames(named);
  const sources = () => {
    const found = folder === undefined ? [] : modelsInFolder(folder);
    return [...named, ...found.filter(({ id }) => !named.some((other) => other.id === id))];
  };
  const aliases = readAliases(alias, sources().map(({ id }) => id), folder !== undefined);
  const budget = memoryMb === undefined ? defaultBudget(load) : memoryMb * 1e6;
  const options = (source: ModelSource) => ({
    ...load,
    model: source.path,
    id: source.id,
    ...(budget < Infinity ? { freeBytes: budget } : {}),
  });
  for (const source of named) await measureModel(options(source)); // a wrong file is worth knowing at once
  return new ModelPool({
    offers: () => withAliases(sources(), aliases),
    budget,
    free: load.backend === "webgpu" ? undefined : freeMemory,
    ...(idleUnload === undefined ? {} : { idleMs: 1000 * idleUnload }),
    note,
    open: (source) => openModel(options(source), host),
  });
}

/** A GPU's memory is not known; it refuses what does not fit. */
function defaultBudget({ backend }: Pick<LoadOptions, "backend">): number {
  return backend === "webgpu" ? Infinity : freeMemory() ?? Infinity;
}

async function openModel(options: LoadOptions, { reloads, note, describe }: PoolHost): Promise<OpenedModel> {
  const measured = await measureModel(options);
  const { weights, activations, states, kv } = measured.memory;
  return {
    bytes: weights + activations + states + kv,
    load: async (signal) => {
      const loaded = reloads
        ? await loadReloadingEngine({ ...options, signal }, note, measured)
        : await measured.load(signal);
      describe(loaded);
      return loaded.engine;
    },
  };
}

function namedModel(given: string): ModelSource {
  const path = modelPath(given);
  const created = Math.floor((Deno.statSync(path).mtime?.getTime() ?? 0) / 1000);
  return { id: modelName(path), aliases: [], path, created };
}

function checkNames(sources: readonly ModelSource[]): void {
  for (const [i, { id, path }] of sources.entries()) {
    const other = sources.slice(0, i).find((source) => source.id === id);
    if (other) {
      throw new UsageError(`"${other.path}" and "${path}" would both be called "${id}"; rename one of them`);
    }
  }
}

interface Alias {
  readonly name: string;
  readonly model: string;
}

/** `NAME=MODEL`, or a name of the only model. Of a model that is not there is an error, unless it may still come. */
function readAliases(given: readonly string[], ids: readonly string[], mayCome = false): Alias[] {
  return given.map((text) => {
    const at = text.indexOf("=");
    if (at < 0 && (ids.length !== 1 || mayCome)) {
      throw new UsageError(`--alias "${text}" must be NAME=MODEL where there are several models`);
    }
    const [name, model] = at < 0 ? [text, ids[0]] : [text.slice(0, at), text.slice(at + 1)];
    if (name === "" || name.length > 256 || ids.includes(name)) {
      throw new UsageError(`--alias "${text}" must give a name of 1 to 256 characters that no model has`);
    }
    if (!mayCome && !ids.includes(model)) {
      throw new UsageError(`--alias "${text}" names no model that there is: ${ids.join(", ")}`);
    }
    return { name, model };
  });
}

/** A model's own name goes before another's alias. */
function withAliases(sources: readonly ModelSource[], aliases: readonly Alias[]): ModelSource[] {
  const ids = new Set(sources.map(({ id }) => id));
  return sources.map((source) => {
    const own = aliases.filter(({ name, model }) => model === source.id && !ids.has(name));
    return { ...source, aliases: own.map(({ name }) => name) };
  });
}

/** What answers depend on to lines that name these models, of which one that is not loaded is measured. */
export function servedIdentities(models: Models, load: Omit<LoadOptions, "model">) {
  const known = new Map<string, Promise<ModelIdentity>>();
  return identities(models, ({ path }) => {
    const version = `${path} ${fileVersion(path)}`;
    const found = known.get(version) ?? identityOf(path, load);
    known.set(version, found);
    found.catch(() => known.delete(version));
    return found;
  });
}

/** Needs no room: the model is not loaded for it. */
async function identityOf(path: string, load: Omit<LoadOptions, "model">): Promise<ModelIdentity> {
  const { contextLength } = await measureModel({ ...load, model: path, freeBytes: Infinity });
  const backend = load.backend === "auto" ? "cpu" : load.backend;
  return await identifyModel({ ...load, path, contextLength, backend });
}
