import { basename } from "@std/path";
import { type EngineLoadOptions, type LoadedEngine, type Model, openModel } from "../../lib/model.ts";
import { modelName, modelPath as fileOfModel } from "../../lib/model_file.ts";
import {
  ADAPTERS,
  COMPUTE,
  type CTX,
  DRAFTS,
  IMAGES,
  type ISA,
  type KV_MB,
  type MODEL,
  NUMA,
  type PROMPT_CACHE,
  VECTORS,
} from "./engine_settings.ts";
import { type CHAT_TEMPLATE, readChatTemplate } from "./chat_template.ts";
import { modelsFolder, pulledModel } from "./models_folder.ts";
import { promptCache } from "./prompt_cache.ts";
import type { Values } from "./settings.ts";
import { note, ProgressLine } from "./terminal.ts";
import { asFlags } from "./words.ts";

/** Id of the bundled demo model. */
const DEMO_ID = "demo";

/**
 * Returns the file that `--model` names, by path or by its name in the models folder; by default the demo
 * model. Throws if it is unreadable or not a file.
 */
export function modelPath(given: string | undefined): string {
  const pulled = given === undefined ? undefined : pulledModel(given);
  return fileOfModel(pulled ?? given, advice(given));
}

/** Returns the id of the model that `--model` names. Does not check that the file exists; loading does. */
export function modelId(given: string | undefined): string {
  return given === undefined ? DEMO_ID : modelName(pulledModel(given) ?? given);
}

/** Returns advice for a model file that does not exist. */
function advice(given: string | undefined): string {
  if (given === undefined) return "name a GGUF file with --model";
  return /[/\\]/.test(given) ? "" : `and no model in "${modelsFolder()}" has this name (deno task pull list)`;
}

/**
 * Loads a model and shows progress on a terminal. `living` is for long-running processes: they reload a
 * failed engine and report it to `note`.
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
    & typeof ADAPTERS
    & typeof IMAGES
    & typeof NUMA
    & typeof VECTORS
    & typeof PROMPT_CACHE
    & { isa: typeof ISA; ctx: typeof CTX; kvMb: typeof KV_MB; chatTemplate: typeof CHAT_TEMPLATE }
  >
>;

const SAME_NAMES = [
  "isa",
  ...Object.keys({ ...COMPUTE, ...DRAFTS, ...ADAPTERS, ...IMAGES, ...NUMA, ...VECTORS }),
] as (keyof EngineValues)[];

/** Returns the engine's options for a command's settings. Warnings go to standard error. */
export function loadOptions(values: EngineValues): Omit<EngineLoadOptions, "model"> {
  const { ctx, kvMb, draft, chatTemplate } = values;
  return {
    ...Object.fromEntries(SAME_NAMES.map((name) => [name, values[name]])),
    draft: draft === undefined ? undefined : modelPath(draft),
    chatTemplate: chatTemplate === undefined ? undefined : readChatTemplate(chatTemplate),
    contextLength: ctx,
    kvBytes: kvMb === undefined ? undefined : kvMb * 1e6,
    promptCache: promptCache(values),
    words: asFlags,
    warn: (message) => note(message, "warning"),
  };
}

/** Returns the number of sequences to run at once. For the default number, the KV cache shrinks to the free memory. */
export function parallelOptions(
  { values, sources }: { values: { parallel: number }; sources: { parallel: string } },
): { readonly parallel: number; readonly kvShare: number | undefined } {
  return { parallel: values.parallel, kvShare: sources.parallel === "default" ? 1 : undefined };
}

/** Loads the model of a command that runs one sequence at a time. */
export function loadForOne(values: EngineValues & Partial<Values<{ model: typeof MODEL }>>): Promise<Model> {
  return loadWithProgress({ ...loadOptions(values), model: modelPath(values.model), parallel: 1 });
}

/** Returns the backend in words, with the reason if it was chosen. */
export function describeBackend(
  { name, isa, threads }: LoadedEngine["backend"]["info"],
  choice: string,
): string {
  const what = name === "cpu" ? `${isa}, ${threads} threads` : `${name}: ${isa}`;
  return choice ? `${what} (${choice})` : what;
}
