import type { Screen } from "./reporter.ts";
import {
  execute,
  type ExecuteOn,
  MOST_SEQUENCES,
  type OpenedEngine,
  openedEngine,
} from "../../lib/batch/jobs.ts";
import type { ImageFolder } from "../../lib/batch/image_folder.ts";
import type { EngineLoadOptions } from "../../lib/model.ts";
import {
  ADAPTERS,
  COMPUTE,
  CTX,
  DRAFTS,
  IMAGES,
  KV_MB,
  MAX_PARALLEL,
  MODEL,
  NUMA,
  PROMPT_CACHE,
  VECTORS,
} from "../shared/engine_settings.ts";
import { CHAT_TEMPLATE } from "../shared/chat_template.ts";
import { loadOptions, loadWithProgress, modelPath } from "../shared/model.ts";
import { buildFirst } from "../shared/native_build.ts";
import { count, type Values } from "../shared/settings.ts";
import { drawLine, err, note, onInterrupt, out } from "../shared/terminal.ts";

/**
 * Options of the engine that answers the lines. Without `parallel`, free memory and measured speed decide how
 * many sequences run at once.
 */
export interface EngineOptions extends Omit<EngineLoadOptions, "model"> {
  /** Path of a GGUF file; by default the bundled demo model. */
  readonly model?: string;
  /** Whether to reload the engine when it fails. */
  readonly reload?: boolean;
}

/** The process resources that the command uses. */
export interface CommandHost extends Screen {
  /** Returns standard input. */
  input(): ReadableStream<Uint8Array>;
  /** Calls `handler` on Ctrl-C, SIGTERM and a closed terminal. The returned function ends the calls. */
  onInterrupt(handler: () => void): () => void;
}

/** The dependencies of the `batch` verbs; tests replace them. */
export interface BatchWorld {
  readonly host: CommandHost;
  readonly openEngine: (options: EngineOptions) => Promise<OpenedEngine>;
  readonly execute: ExecuteOn;
  /** The folder of images that lines may name. */
  readonly images?: ImageFolder;
}

/** Share of free memory that the KV cache may use without --parallel. */
const AUTO_MEMORY = 0.25;

/** Options of the verbs that load a model. */
export const ENGINE_SETTINGS = {
  model: MODEL,
  parallel: count({
    min: 1,
    max: MAX_PARALLEL,
    help:
      `maximum number of lines that run at once, 1 to ${MAX_PARALLEL} (default: the number that fits in memory and ` +
      `speeds up the job, at most ${MOST_SEQUENCES})`,
  }),
  chatTemplate: CHAT_TEMPLATE,
  ctx: CTX,
  kvMb: KV_MB,
  ...COMPUTE,
  ...DRAFTS,
  ...ADAPTERS,
  ...NUMA,
  ...IMAGES,
  ...VECTORS,
  ...PROMPT_CACHE,
};

export function engineOptions(values: Values<typeof ENGINE_SETTINGS>): EngineOptions {
  return { ...loadOptions(values), model: values.model, parallel: values.parallel };
}

/** Returns whether the error means that the reader or terminal of standard output is gone. */
function isGone(error: unknown): boolean {
  return error instanceof Deno.errors.BrokenPipe || (error as { code?: unknown }).code === "EIO";
}

function unlessGone(write: () => void): void {
  try {
    write();
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

const host: CommandHost = {
  // A closed terminal or `| head` must not stop the job.
  out: (text) => unlessGone(() => out(text)),
  err,
  draw: drawLine,
  input: () => Deno.stdin.readable,
  columns: () => Deno.stderr.isTerminal() ? Deno.consoleSize().columns || 80 : undefined,
  now: () => performance.now(),

  onInterrupt,
};

/** The real dependencies: an engine in this process, standard streams and signals. */
export const realWorld: BatchWorld = {
  host,
  execute,
  openEngine: async ({ model, reload, ...options }) => {
    const size = options.parallel === undefined ? { parallel: MOST_SEQUENCES, kvShare: AUTO_MEMORY } : {};
    const all = { ...options, ...size, model: modelPath(model) };
    await buildFirst(options.backend);
    return await openedEngine(await loadWithProgress(all, reload ? { note } : undefined));
  },
};
