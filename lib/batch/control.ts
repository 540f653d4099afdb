import {
  type BatchCounts,
  type BatchOptions,
  type BatchProgress,
  type BatchRefusal,
  errorsPath,
  filesGiven,
} from "./batch.ts";
import { tableOf } from "./table.ts";
import { refuse, toCompyError } from "../errors.ts";
import { checkOptions, type OptionTable } from "../options.ts";

/**
 * The state of a batch that any process may run.
 *
 * ```ts
 * import { type BatchStatus } from "compy";
 *
 * const words = ({ state, completed, failed, total }: BatchStatus) => `${state}: ${completed + failed} of ${total}`;
 * console.log(words({ state: "stopped", completed: 3, failed: 1, total: 8, promptTokens: 40, outputTokens: 70 }));
 * ```
 */
export interface BatchStatus extends BatchProgress {
  /** State of the batch. `stopped`: the same call resumes it. `failed`: it cannot be resumed. */
  readonly state: "running" | "stopped" | "done" | "failed";
  /** Prompt tokens per second of a running batch, once known. */
  readonly promptTokensPerSecond?: number;
  /** Output tokens per second of a running batch, once known. */
  readonly outputTokensPerSecond?: number;
  /** Estimated remaining seconds of a running batch. */
  readonly secondsLeft?: number;
  /** The reason why the batch has failed. */
  readonly reason?: string;
}

/**
 * Returns the status of the batch with this output. For a running batch, here or in another process, it is at
 * most one second old. A stopped batch is counted from its journal. Throws CompyError `no_job` if there is no
 * batch.
 *
 * ```ts
 * import { batchStatus, CompyError } from "compy";
 *
 * try {
 *   const { state, completed, total } = await batchStatus("answers.jsonl");
 *   console.log(state, completed, total);
 * } catch (error) {
 *   if (!(error instanceof CompyError && error.code === "no_job")) throw error;
 * }
 * ```
 */
export async function batchStatus(output: string): Promise<BatchStatus> {
  filesGiven({ output });
  const jobs = await import("./jobs.ts");
  try {
    const { state, total, counts, promptRate, outputRate, remaining, reason } = await jobs.jobStatus(output);
    return {
      state,
      total,
      ...countsOf(counts),
      ...promptRate !== null && { promptTokensPerSecond: promptRate },
      ...outputRate !== null && { outputTokensPerSecond: outputRate },
      ...remaining !== null && { secondsLeft: remaining },
      ...reason !== null && { reason },
    };
  } catch (error) {
    throw toCompyError(error);
  }
}

const CANCEL_OPTIONS: OptionTable<Pick<BatchOptions, "input" | "output" | "errors" | "table">> = {
  input: "text",
  table: "object",
  output: "text",
  errors: "text",
};

/**
 * Ends a batch for good, whichever process runs it, and resolves when it has ended. The output receives the
 * answers so far, and the error file gets `batch_cancelled` for the rest. Needs no model. Throws CompyError
 * `no_job` if there is no batch, and `job_failed` if it has already ended.
 *
 * ```ts
 * import { cancelBatch, CompyError } from "compy";
 *
 * try {
 *   const { completed, failed } = await cancelBatch({ input: "questions.jsonl", output: "answers.jsonl" });
 *   console.log(completed, failed);
 * } catch (error) {
 *   if (!(error instanceof CompyError && error.code === "no_job")) throw error;
 * }
 * ```
 */
export async function cancelBatch(
  options: Pick<BatchOptions, "input" | "output" | "errors" | "table">,
): Promise<BatchCounts> {
  checkOptions(options, CANCEL_OPTIONS);
  const { input, output, table } = options;
  filesGiven({ input, output });
  const errors = options.errors ?? errorsPath(output);
  const shape = table && await tableOf(input, output, table);
  const jobs = await import("./jobs.ts");
  try {
    return countsOf(await jobs.cancelJob({ input, output, errors }, shape?.openInput));
  } catch (error) {
    throw toCompyError(error);
  }
}

/**
 * Options of a batch check.
 *
 * ```ts
 * import { type BatchCheckOptions } from "compy";
 *
 * const chats: BatchCheckOptions = { endpoint: "/v1/chat/completions", onRefused: ({ message }) => console.error(message) };
 * console.log(chats.endpoint);
 * ```
 */
export interface BatchCheckOptions extends Pick<BatchOptions, "table" | "onRefused"> {
  /** The endpoint that all lines must name, such as `/v1/chat/completions`. */
  readonly endpoint?: string;
  /** Model names that lines may use; by default any name. */
  readonly models?: readonly string[];
}

const CHECK_OPTIONS: OptionTable<BatchCheckOptions> = {
  table: "object",
  onRefused: "function",
  endpoint: "text",
  models: "texts",
};

/**
 * The result of a batch check.
 *
 * ```ts
 * import { type BatchCheck } from "compy";
 *
 * const words = ({ lines, bad }: BatchCheck) => `${lines - bad} of ${lines} lines can be asked`;
 * console.log(words({ lines: 3, bad: 1, bytes: 400 }));
 * ```
 */
export interface BatchCheck {
  /** Number of lines in the file. */
  readonly lines: number;
  /** Number of refused lines. */
  readonly bad: number;
  /** Size of the file in bytes. */
  readonly bytes: number;
}

/**
 * Checks a file of requests or rows without a model, and writes nothing. Faults that depend on the model,
 * such as a prompt beyond its context window, show only when the line runs.
 *
 * ```ts
 * import { checkBatch } from "compy";
 *
 * const file = await Deno.makeTempFile();
 * await Deno.writeTextFile(file, '{"custom_id":"q1","method":"POST","url":"/v1/completions","body":{"prompt":3}}\n');
 * const { lines, bad } = await checkBatch(file, { onRefused: ({ message }) => console.log(message) });
 * console.log(lines, bad); // 1 1
 * await Deno.remove(file);
 * ```
 */
export async function checkBatch(input: string, options: BatchCheckOptions = {}): Promise<BatchCheck> {
  checkOptions(options, CHECK_OPTIONS);
  filesGiven({ input });
  const { table, endpoint, models, onRefused } = options;
  const shape = table && await tableOf(input, undefined, table);
  const [jobs, { bodyExaminer }] = await Promise.all([import("./jobs.ts"), import("./check_body.ts")]);
  if (endpoint !== undefined && !jobs.GENERATION_URLS.includes(endpoint)) {
    refuse("endpoint", `must be ${jobs.GENERATION_URLS.join(" or ")}`, endpoint);
  }
  const onRefusal = (refusal: BatchRefusal) => onRefused?.(refusal);
  try {
    return await jobs.checkJob(input, {
      openInput: shape?.openInput,
      endpoint,
      onRefusal,
      examine: bodyExaminer({ models }),
    });
  } catch (error) {
    throw toCompyError(error);
  }
}

/** Returns only the public counts of a journal's counts. */
function countsOf({ completed, failed, promptTokens, outputTokens }: BatchCounts): BatchCounts {
  return { completed, failed, promptTokens, outputTokens };
}
