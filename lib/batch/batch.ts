import { type BatchTable, tableOf } from "./table.ts";
import { refuse, toCompyError } from "../errors.ts";
import { loadedOf, type Model } from "../model.ts";
import { checkOptions, type OptionTable, positive } from "../options.ts";
import type { LineEngine } from "../../jobs/setup.ts";

/**
 * The files of a batch and how to answer them.
 *
 * ```ts
 * import { type BatchOptions } from "compy";
 *
 * const job: BatchOptions = {
 *   input: "questions.jsonl",
 *   output: "answers.jsonl",
 *   order: "completed",
 *   onRefused: ({ line, message }) => console.error(`line ${line}: ${message}`),
 * };
 * console.log(job.output);
 * ```
 */
export interface BatchOptions {
  /** A JSONL file with one request per line in OpenAI's batch format; with `table`, a file of rows. */
  readonly input: string;
  /**
   * Reads the input as rows: CSV, Parquet, JSONL, or a text with one prompt per line. The output has the
   * answers beside the rows.
   */
  readonly table?: BatchTable;
  /** The output file. The journal `output` + `.journal` beside it records the progress of the job. */
  readonly output: string;
  /**
   * The file for refused and failed lines; default `OUT.errors.jsonl` for `OUT.jsonl`. Without refused or failed lines
   * it is not written.
   */
  readonly errors?: string;
  /**
   * A folder of images. Lines may name its files as `file:PATH`, with a path relative to the folder. A table's image
   * column may also contain these paths. The folder's path is part of the job's identity.
   */
  readonly images?: string;
  /** Number of lines in progress; default 1.5 times the number of requests that the model runs together. */
  readonly parallel?: number;
  /** The order of the output's lines: as in the input (default) or in order of completion. */
  readonly order?: "input" | "completed";
  /** Whether to refuse the whole job before it runs if any line is bad. */
  readonly strict?: boolean;
  /** Names besides the model's own that lines may give as `model`, such as `gpt-4o-mini`. */
  readonly aliases?: readonly string[];
  /** Number of lines to answer, from the first. The same call without `limit` answers the remaining lines. */
  readonly limit?: number;
  /** Called when further answers are durable. */
  readonly onProgress?: (progress: BatchProgress) => void;
  /** Called for each bad line. The error file also receives its error. */
  readonly onRefused?: (refusal: BatchRefusal) => void;
  /** When aborted, the batch takes no new lines, finishes the lines in progress, and stops. */
  readonly drainSignal?: AbortSignal;
  /** When aborted, the batch stops at once. The same call resumes the job. */
  readonly signal?: AbortSignal;
}

const BATCH_OPTIONS: OptionTable<BatchOptions> = {
  input: "text",
  table: "object",
  output: "text",
  errors: "text",
  images: "text",
  parallel: "number",
  order: "text",
  strict: "switch",
  aliases: "texts",
  limit: "number",
  onProgress: "function",
  onRefused: "function",
  drainSignal: "object",
  signal: "object",
};

/**
 * The number of answered lines of a batch and their tokens, earlier runs included.
 *
 * ```ts
 * import { type BatchCounts } from "compy";
 *
 * const report = ({ completed, failed }: BatchCounts) => `${completed} answers, ${failed} errors`;
 * console.log(report({ completed: 3, failed: 1, promptTokens: 40, outputTokens: 70 }));
 * ```
 */
export interface BatchCounts {
  /** Number of answered lines. */
  readonly completed: number;
  /** Number of refused and failed lines. */
  readonly failed: number;
  /** Number of tokens of all prompts. */
  readonly promptTokens: number;
  /** Number of tokens of all answers. */
  readonly outputTokens: number;
}

/**
 * The progress of a batch.
 *
 * ```ts
 * import { type BatchProgress } from "compy";
 *
 * const share = ({ completed, failed, total }: BatchProgress) => (completed + failed) / total;
 * console.log(share({ completed: 3, failed: 1, total: 8, promptTokens: 40, outputTokens: 70 }));
 * ```
 */
export interface BatchProgress extends BatchCounts {
  /** Number of lines; with `limit`, the number of lines to answer. */
  readonly total: number;
}

/**
 * The reason why a line of a batch is refused before it runs.
 *
 * ```ts
 * import { type BatchRefusal } from "compy";
 *
 * const words = ({ line, customId, message }: BatchRefusal) => `line ${line} (${customId ?? "no id"}): ${message}`;
 * console.log(words({ line: 3, customId: null, code: "invalid_json", message: "it is no JSON" }));
 * ```
 */
export interface BatchRefusal {
  /** Number of the line in its file, from 1. */
  readonly line: number;
  /** The line's `custom_id`; null if it has no readable one. */
  readonly customId: string | null;
  /** The error code, as in the API's errors. */
  readonly code: string;
  /** The error message, for people. */
  readonly message: string;
}

/**
 * The result of a batch.
 *
 * ```ts
 * import { type BatchResult } from "compy";
 *
 * const exitCode = ({ state, counts }: BatchResult) => state === "stopped" || counts.completed === 0 ? 1 : 0;
 * console.log(exitCode);
 * ```
 */
export interface BatchResult {
  /**
   * How the batch ended. `already_done`: an earlier run finished it. `stopped`: a signal stopped it; the same call
   * resumes it. `limited`: the first lines are answered; the same call without `limit` answers the rest.
   */
  readonly state: "done" | "already_done" | "stopped" | "limited";
  /** Counts of all runs of the batch together; for `limited`, of the lines in the output. */
  readonly counts: BatchCounts;
}

/**
 * Answers a file of requests, each line exactly once, and returns the result. Every answer is on disk before
 * it is counted. After a stop, a crash or a power cut the same call resumes the job.
 *
 * `model` may be a function that loads a model. The function is called only if there are lines to answer, and its
 * model is closed at the end. Throws CompyError with a batch's code.
 *
 * ```ts
 * import { loadModel, runBatch } from "compy";
 *
 * const folder = await Deno.makeTempDir();
 * await Deno.writeTextFile(
 *   `${folder}/in.jsonl`,
 *   JSON.stringify({
 *     custom_id: "q1",
 *     method: "POST",
 *     url: "/v1/chat/completions",
 *     body: { messages: [{ role: "user", content: "Who are you?" }] },
 *   }),
 * );
 *
 * await using model = await loadModel();
 * const files = { input: `${folder}/in.jsonl`, output: `${folder}/out.jsonl` };
 * console.log((await runBatch(model, files)).state, (await runBatch(model, files)).state); // done already_done
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export async function runBatch(
  model: Model | (() => Promise<Model>),
  options: BatchOptions,
): Promise<BatchResult> {
  checkOptions(options, BATCH_OPTIONS);
  const { input, output, errors = errorsPath(output), order, strict, onProgress, onRefused } = options;
  const { parallel, signal, drainSignal, limit, aliases = [] } = options;
  filesGiven({ input, output });
  positive("parallel", parallel);
  positive("limit", limit);
  if (order !== undefined && order !== "input" && order !== "completed") {
    refuse("order", 'must be "input" or "completed"', order);
  }
  if (options.table !== undefined && order === "completed") {
    refuse("order", 'must be "input" with a table, whose rows keep their order', order);
  }
  const table = options.table && await tableOf(input, output, options.table);
  const images = options.images === undefined ? undefined : await folderOf(options.images);
  // The modules are imported on demand, so that the library starts faster and runs without a file system.
  const [{ runJob }, { LINE_LIMITS, lineEngine, openedEngine }, { bodyExaminer }] = await Promise.all([
    import("../../jobs/setup.ts"),
    import("./lines.ts"),
    import("./check_body.ts"),
  ]);
  const isOwn = typeof model === "function";
  let own: Model | undefined;
  try {
    return await runJob({
      input,
      output,
      errors,
      order,
      strict,
      limit,
      signal,
      drainSignal,
      aliases,
      ...table,
      limits: LINE_LIMITS,
      // The name of a model that is not yet loaded is unknown.
      examine: bodyExaminer(
        isOwn ? {} : {
          models: [model.info.id, ...aliases],
          lora: loadedOf(model).engine.model.adapters?.map(({ path }) => path),
        },
      ),
      lines: parallel,
      sequences: isOwn ? undefined : loadedOf(model).engine.slots().length,
      connect: async () => {
        const opened = isOwn ? own = await model() : model;
        const engine = { ...lineEngine(await openedEngine(opened)), close: async () => {} };
        return images?.(engine) ?? engine;
      },
      onEvent: (event) => {
        if (event.type === "refused") onRefused?.(event.refusal);
        if (event.type === "progress" || event.type === "started") onProgress?.(event.progress);
      },
    });
  } catch (error) {
    throw toCompyError(error);
  } finally {
    await own?.close();
  }
}

/** Returns a function that lets an engine's lines name images in the folder. Throws CompyError if it is not a folder. */
async function folderOf(path: string) {
  const { openImageFolder, withImages } = await import("./image_folder.ts");
  const folder = await openImageFolder(path).catch((error: Error) =>
    refuse("images", `must be a folder: ${error.message}`, path)
  );
  return (engine: LineEngine) => withImages(engine, folder);
}

/** Returns the default path of a job's error file. */
export function errorsPath(output: string): string {
  return `${output.replace(/\.(jsonl|csv|tsv|parquet)$/, "")}.errors.jsonl`;
}

/** Throws CompyError if one of the values is not a path. */
export function filesGiven(files: Readonly<Record<string, unknown>>): void {
  for (const [name, path] of Object.entries(files)) {
    if (typeof path !== "string" || path === "") refuse(name, "must be a file's path", path);
  }
}
