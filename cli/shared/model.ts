import { basename } from "@std/path";
import {
  ACCURACIES,
  ACTIVATION_PRECISIONS,
  ARITHMETICS,
  BACKENDS,
  KV_TYPES,
  POOLING_KINDS,
  SPECULATE,
} from "../../lib/model.ts";
import { type EngineLoadOptions, type LoadedEngine, type Model, openModel } from "../../lib/model.ts";
import { modelName, modelPath as fileOfModel } from "../../lib/model_file.ts";
import { type Flags, UsageError } from "./flags.ts";
import { modelsFolder, pulledModel } from "./models_folder.ts";
import { note, ProgressLine } from "./terminal.ts";
import { asFlags } from "./words.ts";

/** Bounds of the options that several commands have. */
export const MAX_THREADS = 1024;
export const MAX_CONTEXT = 16_777_216;
export const MAX_PARALLEL = 1024;
export const MAX_COUNT = 1_000_000;
export const MAX_TEMPERATURE = 10;

/** The options that bound an answer; they mean the same. */
export const LENGTH_FLAGS = ["n", "max-tokens"];

/** `-n` or `--max-tokens`: most tokens of an answer. */
export function maxTokensOption(flags: Flags): number | undefined {
  const [short, long] = LENGTH_FLAGS.map((name) => flags.count(name, 0, MAX_COUNT));
  if (short !== undefined && long !== undefined) throw new UsageError("Give one of -n and --max-tokens");
  return short ?? long;
}

/** What the demo model is called. */
const DEMO_ID = "demo";

/** How much a model may be asked to think before it answers. */
export const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

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

/** The model of a command that asks one thing at a time, as its options say: `--model`, `--ctx`, `--threads`, `--isa`, BACKEND_FLAGS and SPECULATION_FLAGS. */
export function loadForOne(flags: Flags): Promise<Model> {
  return loadWithProgress({
    model: modelPath(flags.text("model")),
    contextLength: flags.count("ctx", 1, MAX_CONTEXT),
    threads: flags.count("threads", 1, MAX_THREADS),
    isa: flags.text("isa"),
    ...backendOptions(flags),
    ...speculationOptions(flags),
    parallel: 1,
  });
}

/** Most megabytes of a KV cache. */
export const MAX_KV_MB = 2 ** 24;

/** The options that say how much runs side by side, and how much memory that may take. */
export const SIZE_FLAGS = ["ctx", "parallel", "kv-mb"];

/** `--ctx`, `--parallel` and `--kv-mb`. What the command line names is to be had; a default shrinks to what is free. */
export function sizeOptions(
  flags: Flags,
  defaultParallel: number,
): Pick<EngineLoadOptions, "contextLength" | "kvBytes" | "kvShare"> & { readonly parallel: number } {
  const parallel = flags.count("parallel", 1, MAX_PARALLEL);
  return {
    contextLength: flags.count("ctx", 1, MAX_CONTEXT),
    parallel: parallel ?? defaultParallel,
    kvBytes: kvBytes(flags),
    kvShare: parallel === undefined ? 1 : undefined,
  };
}

/** `--kv-mb` in bytes. */
export function kvBytes(flags: Flags): number | undefined {
  const megabytes = flags.count("kv-mb", 1, MAX_KV_MB);
  return megabytes === undefined ? undefined : megabytes * 1e6;
}

/** The options that say where and how a model is computed. */
export const BACKEND_FLAGS = ["backend", "arithmetic", "accuracy", "kv-type", "activations"];

/** `--pooling`, of commands that may embed texts. */
export function poolingOption(flags: Flags): Pick<EngineLoadOptions, "pooling"> {
  return { pooling: flags.choice("pooling", POOLING_KINDS) };
}

/** `--backend`, `--arithmetic`, `--accuracy`, `--kv-type` and `--activations`; what a backend warns of goes to stderr. */
export function backendOptions(
  flags: Flags,
): Pick<
  EngineLoadOptions,
  "backend" | "arithmetic" | "accuracy" | "kvType" | "activations" | "words" | "warn"
> {
  return {
    backend: flags.choice("backend", BACKENDS),
    arithmetic: flags.choice("arithmetic", ARITHMETICS),
    accuracy: flags.choice("accuracy", ACCURACIES),
    kvType: flags.choice("kv-type", KV_TYPES),
    activations: flags.choice("activations", ACTIVATION_PRECISIONS),
    words: asFlags,
    warn: (message) => note(message, "warning"),
  };
}

/** The options that say where drafts come from. */
export const SPECULATION_FLAGS = ["speculate", "draft"];

/** `--speculate` and `--draft`. */
export function speculationOptions(flags: Flags): Pick<EngineLoadOptions, "speculate" | "draft"> {
  const draft = flags.text("draft");
  return {
    speculate: flags.choice("speculate", SPECULATE),
    draft: draft === undefined ? undefined : modelPath(draft),
  };
}

/** What computes, and why where it was chosen. */
export function describeBackend(
  { name, isa, threads }: LoadedEngine["backend"]["info"],
  choice: string,
): string {
  const what = name === "cpu" ? `${isa}, ${threads} threads` : `${name}: ${isa}`;
  return choice ? `${what} (${choice})` : what;
}
