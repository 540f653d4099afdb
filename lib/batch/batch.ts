import { type BatchTable, tableOf } from "./table.ts";
import { refuse, toCompyError } from "../errors.ts";
import { loadedOf, type Model } from "../model.ts";
import { checkOptions, type OptionTable, positive } from "../options.ts";

/**
 * What a batch is to read and write, and how.
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
  /** A JSONL file of requests, a line each, as OpenAI's batches have them; or, with `table`, a file of rows. */
  readonly input: string;
  /** The input is a CSV or Parquet file, rows in JSONL, or a text with a prompt a line: what each row is asked. Answers stand beside the rows. */
  readonly table?: BatchTable;
  /** Where the answers go. Beside it, in `output` with `.journal` behind, stands how far the job is. */
  readonly output: string;
  /** Where refused and failed lines go; default `OUT.errors.jsonl` for `OUT.jsonl`. Written only when there are any. */
  readonly errors?: string;
  /** Number of lines in flight; default 1.5 times the number of requests that the model runs together. */
  readonly parallel?: number;
  /** Of the lines in the output: as in the input (default), or as the answers came. */
  readonly order?: "input" | "completed";
  /** Refuse the whole job, before anything runs, when any line is bad. */
  readonly strict?: boolean;
  /** Names that lines may give the model besides its own, such as `gpt-4o-mini`. */
  readonly aliases?: readonly string[];
  /** Answers only so many lines, from the first. The same call without it goes on with the others. */
  readonly limit?: number;
  /** Told whenever lines have been answered, durably. */
  readonly onProgress?: (progress: BatchProgress) => void;
  /** Told of each bad line; it is answered among the errors. */
  readonly onRefused?: (refusal: BatchRefusal) => void;
  /** Takes no new lines, ends those in flight, stops. */
  readonly drainSignal?: AbortSignal;
  /** Stops now. What was stopped resumes when it is run again. */
  readonly signal?: AbortSignal;
}

const BATCH_OPTIONS: OptionTable<BatchOptions> = {
  input: "text",
  table: "object",
  output: "text",
  errors: "text",
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
 * How many lines of a batch are answered, and what they took in tokens, earlier runs included.
 *
 * ```ts
 * import { type BatchCounts } from "compy";
 *
 * const report = ({ completed, failed }: BatchCounts) => `${completed} answers, ${failed} errors`;
 * console.log(report({ completed: 3, failed: 1, promptTokens: 40, outputTokens: 70 }));
 * ```
 */
export interface BatchCounts {
  /** Lines that were answered. */
  readonly completed: number;
  /** Lines that were refused or failed. */
  readonly failed: number;
  /** Tokens of all prompts. */
  readonly promptTokens: number;
  /** Tokens of all answers. */
  readonly outputTokens: number;
}

/**
 * How far a batch is.
 *
 * ```ts
 * import { type BatchProgress } from "compy";
 *
 * const share = ({ completed, failed, total }: BatchProgress) => (completed + failed) / total;
 * console.log(share({ completed: 3, failed: 1, total: 8, promptTokens: 40, outputTokens: 70 }));
 * ```
 */
export interface BatchProgress extends BatchCounts {
  /** Lines in all; with `limit`, those that are answered in the end. */
  readonly total: number;
}

/**
 * Why a line of a batch is refused before it is run.
 *
 * ```ts
 * import { type BatchRefusal } from "compy";
 *
 * const words = ({ line, customId, message }: BatchRefusal) => `line ${line} (${customId ?? "no id"}): ${message}`;
 * console.log(words({ line: 3, customId: null, code: "invalid_json", message: "it is no JSON" }));
 * ```
 */
export interface BatchRefusal {
  /** Its number, from 1. */
  readonly line: number;
  /** Its `custom_id`, where it has one that can be read. */
  readonly customId: string | null;
  /** As in the errors of the API. */
  readonly code: string;
  /** What is wrong, for people. */
  readonly message: string;
}

/**
 * What became of a batch.
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
   * `already_done`: by an earlier run. `stopped`: by a signal; the same call resumes it. `limited`: the first lines are answered, and
   * are in the output; the same call without `limit` goes on with the others.
   */
  readonly state: "done" | "already_done" | "stopped" | "limited";
  /** Of all runs together; of `limited`, of the lines in the output. */
  readonly counts: BatchCounts;
}

/**
 * Answers a file of requests, each line exactly once: every answer is on the disk before it is counted, and after a stop, a crash or a
 * power cut the same call resumes the job. `model` may be a function that loads one: it is called only where there is something to
 * answer, and its model is closed in the end. Throws CompyError with a batch's code.
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
  // What only jobs need is read when there is one: the rest of the library begins faster, and runs where there are no files.
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
      // The name of a model that is still to be loaded is not known.
      examine: bodyExaminer(isOwn ? undefined : [model.info.id, ...aliases]),
      lines: parallel,
      sequences: isOwn ? undefined : loadedOf(model).engine.slots().length,
      connect: async () => {
        const opened = isOwn ? own = await model() : model;
        return { ...lineEngine(await openedEngine(opened)), close: async () => {} };
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

/** Where the errors of a job go that names no other place. */
export function errorsPath(output: string): string {
  return `${output.replace(/\.(jsonl|csv|tsv|parquet)$/, "")}.errors.jsonl`;
}

/** Throws CompyError where one of these is no path. */
export function filesGiven(files: Readonly<Record<string, unknown>>): void {
  for (const [name, path] of Object.entries(files)) {
    if (typeof path !== "string" || path === "") refuse(name, "must be a file's path", path);
  }
}
