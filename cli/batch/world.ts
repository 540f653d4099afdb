import type { Screen } from "./reporter.ts";
import { execute, type ExecuteOn, type OpenedEngine } from "../../lib/batch/jobs.ts";
import {
  type ActivationPrecision,
  type Arithmetic,
  type BackendName,
  type EngineLoadOptions,
  identityOf,
  type KvType,
  loadedOf,
  type PoolingKind,
  type Speculate,
} from "../../lib/model.ts";
import type { Flags } from "../shared/flags.ts";
import {
  BACKEND_FLAGS,
  backendOptions,
  kvBytes,
  loadWithProgress,
  MAX_CONTEXT,
  MAX_PARALLEL,
  MAX_THREADS,
  modelPath,
  poolingOption,
  SIZE_FLAGS,
  SPECULATION_FLAGS,
  speculationOptions,
} from "../shared/model.ts";
import { CACHE_FLAGS, CACHE_HELP, CACHE_SWITCHES, promptCacheOption } from "../serve/prompt_cache.ts";
import { buildFirst } from "../shared/native_build.ts";
import { err, note, onInterrupt, out } from "../shared/terminal.ts";

export interface EngineOptions {
  /** A GGUF file; without it, the one that comes with the program. */
  readonly model?: string;
  /** Lines that run side by side; without it, as many as memory holds and as make the job faster. */
  readonly parallel?: number;
  /** Tokens of a line's prompt and answer together, and threads; without them, the engine's defaults. */
  readonly contextLength?: number;
  readonly threads?: number;
  /** Of the KV cache; without it, what the lines need, or the share that fits. See EngineLoadOptions. */
  readonly kvBytes?: number;
  readonly kvShare?: number;
  readonly backend?: BackendName;
  readonly arithmetic?: Arithmetic;
  readonly kvType?: KvType;
  readonly activations?: ActivationPrecision;
  readonly speculate?: Speculate;
  readonly draft?: string;
  /** How texts become vectors, where the file is not to say. */
  readonly pooling?: PoolingKind;
  /** Where prompts are kept that later processes go on from. */
  readonly promptCache?: EngineLoadOptions["promptCache"];
  /** Load the engine again when it fails. */
  readonly reload?: boolean;
}

/** What the command needs of its process. */
export interface CommandHost extends Screen {
  /** Standard input. */
  input(): ReadableStream<Uint8Array>;
  /** Calls the handler on Ctrl-C and SIGTERM until the returned function is called. */
  onInterrupt(handler: () => void): () => void;
}

/** What the verbs of `batch` work with; tests put their own in its place. */
export interface BatchWorld {
  readonly host: CommandHost;
  readonly openEngine: (options: EngineOptions) => Promise<OpenedEngine>;
  readonly execute: ExecuteOn;
}

/** Most lines that run side by side without --parallel. */
export const AUTO_PARALLEL = 64;
/** The share of the memory that is free which the KV cache may take then. */
const AUTO_MEMORY = 0.25;

/** The options of the verbs that load a model. */
export const ENGINE_FLAGS = [
  "model",
  "threads",
  "pooling",
  ...SIZE_FLAGS,
  ...BACKEND_FLAGS,
  ...SPECULATION_FLAGS,
  ...CACHE_FLAGS,
];
export const ENGINE_SWITCHES = CACHE_SWITCHES;

export const ENGINE_HELP = `  --model FILE     the GGUF model (default: the one that comes with compy)
  --parallel N     lines that run side by side, 1 to ${MAX_PARALLEL}; the default is below
  --ctx N          tokens that a line's prompt and answer may have together (default: the model's own, at most 4096)
  --kv-mb N        memory for the KV cache, in units of 10^6 bytes; lines take it as they grow, and wait where it runs out
                   (default: what --parallel lines of --ctx tokens need; without --parallel as much of that as fits)
  --threads N      threads that compute (default: one a physical core)
  --backend NAME   cpu, wasm (WebAssembly), webgpu, or auto: the GPU if it measures faster (default cpu;
                   wasm where there are no native kernels)
  --arithmetic A   of the GPU's matrix products: f32 or f16 (default f32)
  --accuracy A     gated (default), or any: also in an arithmetic in which the model leaves its gates of accuracy
  --kv-type T      of the KV cache: f16, 16 bits a value, which on the CPU are integers with a scale for each head, or q8_0 in
                   53 % of the memory (default f16)
  --activations A  rounded before products with quantised weights, on the CPU: fast (to 8 bits) or fine (to 15:
                   nearer to exact, prompts at about half the speed) (default fast)
  --speculate S    drafts of the next tokens, checked several a step, for the same answers sooner: auto, off, lookup (from the
                   text's own repetitions), mtp or draft (default auto)
  --draft FILE     a smaller model of the same vocabulary that drafts
  --pooling P      how a text becomes one vector: mean, cls, last or rank (default: what the file says, or else last, of encoders mean)
${CACHE_HELP}`;

/** `parallel` says otherwise how many lines run side by side. */
export function engineOptions(
  flags: Flags,
  parallel: { default?: number; max: number } = { max: MAX_PARALLEL },
): EngineOptions {
  return {
    model: flags.text("model"),
    parallel: flags.count("parallel", 1, parallel.max) ?? parallel.default,
    contextLength: flags.count("ctx", 1, MAX_CONTEXT),
    threads: flags.count("threads", 1, MAX_THREADS),
    kvBytes: kvBytes(flags),
    promptCache: promptCacheOption(flags),
    ...backendOptions(flags),
    ...speculationOptions(flags),
    ...poolingOption(flags),
  };
}

function unlessBroken(write: () => void): void {
  try {
    write();
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

const host: CommandHost = {
  // A reader that went away (a closed terminal, `| head`) is no reason to stop the job.
  out: (text) => unlessBroken(() => out(text)),
  err,
  input: () => Deno.stdin.readable,
  columns: () => Deno.stderr.isTerminal() ? Deno.consoleSize().columns || 80 : undefined,
  now: () => performance.now(),

  onInterrupt,
};

/** The real one: an engine in this process, standard output and error, signals. */
export const realWorld: BatchWorld = {
  host,
  execute,
  openEngine: async ({ model, reload, ...options }) => {
    const size = options.parallel === undefined ? { parallel: AUTO_PARALLEL, kvShare: AUTO_MEMORY } : {};
    const all = { ...options, ...size, model: modelPath(model) };
    await buildFirst(options.backend);
    const opened = await loadWithProgress(all, reload ? { note } : undefined);
    const { engine, backend } = loadedOf(opened);
    return { engine, identity: await identityOf(opened), processor: backend.info.isa };
  },
};
