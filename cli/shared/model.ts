import { basename } from "@std/path";
import { type EngineLoadOptions, type LoadedEngine, type Model, openModel } from "../../lib/model.ts";
import { modelName, modelPath as fileOfModel } from "../../lib/model_file.ts";
import {
  COMPUTE,
  type CTX,
  DRAFTS,
  type ISA,
  type KV_MB,
  type MODEL,
  type PROMPT_CACHE,
  VECTORS,
} from "./engine_settings.ts";
import { modelsFolder, pulledModel } from "./models_folder.ts";
import { promptCache } from "./prompt_cache.ts";
import type { Values } from "./settings.ts";
import { note, ProgressLine } from "./terminal.ts";
import { asFlags } from "./words.ts";

/** What the demo model is called. */
const DEMO_ID = "demo";

/**
 * The file that `--model` names: by its path, or as it is called in the folder of models; or the demo model. Throws where it
 * cannot be read, or is no file.
 */
export function modelPath(given: string | undefined): string {
  const pulled = given === undefined ? undefined : pulledModel(given);
  return fileOfModel(pulled ?? given, advice(given));
}

/** What the model that `--model` names is called; whether there is such a file shows when it is loaded. */
export function modelId(given: string | undefined): string {
  return given === undefined ? DEMO_ID : modelName(pulledModel(given) ?? given);
}

/** What to do where there is no such file. */
function advice(given: string | undefined): string {
  if (given === undefined) return "name a GGUF file with --model";
  return /[/\\]/.test(given) ? "" : `and no model in "${modelsFolder()}" is called so (deno task pull list)`;
}

/**
 * Loads a model, with progress on a terminal. `living` is for a process that lives on: an engine that fails is loaded again where `note`
 * is told of it.
 */
export async function loadWithProgress(
  options: Omit<EngineLoadOptions, "progress">,
  living?: Parameters<typeof openModel>[1],
): Promise<Model> {
  const line = new ProgressLine(`Loading ${basename(options.model)}`);
  try {
    return await openModel({ ...options, progress: (done, total) => line.update(done, total) }, living);
  } finally {
    line.done();
  }
}

/** Values of the settings that describe an engine; a command may have any of them. */
type EngineValues = Partial<
  Values<
    & typeof COMPUTE
    & typeof DRAFTS
    & typeof VECTORS
    & typeof PROMPT_CACHE
    & { isa: typeof ISA; ctx: typeof CTX; kvMb: typeof KV_MB }
  >
>;

const SAME_NAMES = ["isa", ...Object.keys({ ...COMPUTE, ...DRAFTS, ...VECTORS })] as (keyof EngineValues)[];

/** Returns the engine's options for a command's settings. Warnings go to standard error. */
export function loadOptions(values: EngineValues): Omit<EngineLoadOptions, "model"> {
  const { ctx, kvMb, draft } = values;
  return {
    ...Object.fromEntries(SAME_NAMES.map((name) => [name, values[name]])),
    draft: draft === undefined ? undefined : modelPath(draft),
    contextLength: ctx,
    kvBytes: kvMb === undefined ? undefined : kvMb * 1e6,
    promptCache: promptCache(values),
    words: asFlags,
    warn: (message) => note(message, "warning"),
  };
}

/** Returns how many sequences run at once. The KV cache for a default number shrinks to the free memory. */
export function parallelOptions(
  { values, sources }: { values: { parallel: number }; sources: { parallel: string } },
): { readonly parallel: number; readonly kvShare: number | undefined } {
  return { parallel: values.parallel, kvShare: sources.parallel === "default" ? 1 : undefined };
}

/** Loads the model of a command that runs one sequence at a time. */
export function loadForOne(values: EngineValues & Partial<Values<{ model: typeof MODEL }>>): Promise<Model> {
  return loadWithProgress({ ...loadOptions(values), model: modelPath(values.model), parallel: 1 });
}

/** What computes, and why where it was chosen. */
export function describeBackend(
  { name, isa, threads }: LoadedEngine["backend"]["info"],
  choice: string,
): string {
  const what = name === "cpu" ? `${isa}, ${threads} threads` : `${name}: ${isa}`;
  return choice ? `${what} (${choice})` : what;
}
