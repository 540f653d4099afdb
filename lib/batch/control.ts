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
 * How far a batch is, whoever runs it.
 *
 * ```ts
 * import { type BatchStatus } from "compy";
 *
 * const words = ({ state, completed, failed, total }: BatchStatus) => `${state}: ${completed + failed} of ${total}`;
 * console.log(words({ state: "stopped", completed: 3, failed: 1, total: 8, promptTokens: 40, outputTokens: 70 }));
 * ```
 */
export interface BatchStatus extends BatchProgress {
  /** `stopped`: the same call resumes it. `failed`: for good. */
  readonly state: "running" | "stopped" | "done" | "failed";
  /** Of a batch that runs, once they are known: tokens of prompts and of answers a second. */
  readonly promptTokensPerSecond?: number;
  /** See promptTokensPerSecond. */
  readonly outputTokensPerSecond?: number;
  /** Of a batch that runs, about. */
  readonly secondsLeft?: number;
  /** Why it has failed. */
  readonly reason?: string;
}

/**
 * How far the batch is whose answers go to `output`: of one that runs, here or in another process, what was written within the last
 * second; one that has stopped is counted from its journal. Throws CompyError `no_job` where there is none.
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
 * Ends a batch for good, wherever it runs, and waits for that: what was answered goes to its output, the rest to its errors as
 * `batch_cancelled`. No model is needed. Throws CompyError `no_job` where there is none, and `job_failed` where it has ended before.
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
 * What is to be checked besides.
 *
 * ```ts
 * import { type BatchCheckOptions } from "compy";
 *
 * const chats: BatchCheckOptions = { endpoint: "/v1/chat/completions", onRefused: ({ message }) => console.error(message) };
 * console.log(chats.endpoint);
 * ```
 */
export interface BatchCheckOptions extends Pick<BatchOptions, "table" | "onRefused"> {
  /** All lines must be for this one, such as `/v1/chat/completions`. */
  readonly endpoint?: string;
  /** Names that lines may give the model that is to answer them; without it, any. */
  readonly models?: readonly string[];
}

const CHECK_OPTIONS: OptionTable<BatchCheckOptions> = {
  table: "object",
  onRefused: "function",
  endpoint: "text",
  models: "texts",
};

/**
 * What a file of requests holds.
 *
 * ```ts
 * import { type BatchCheck } from "compy";
 *
 * const words = ({ lines, bad }: BatchCheck) => `${lines - bad} of ${lines} lines can be asked`;
 * console.log(words({ lines: 3, bad: 1, bytes: 400 }));
 * ```
 */
export interface BatchCheck {
  /** Lines in all. */
  readonly lines: number;
  /** Of them those that are refused. */
  readonly bad: number;
  /** Of the file. */
  readonly bytes: number;
}

/**
 * Checks a file of requests, or of rows, without a model: nothing is written. What depends on the model, such as whether a prompt fits
 * its context, shows only when the line runs.
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
      examine: bodyExaminer(models),
    });
  } catch (error) {
    throw toCompyError(error);
  }
}

/** What a journal counts, and nothing that is of its own. */
function countsOf({ completed, failed, promptTokens, outputTokens }: BatchCounts): BatchCounts {
  return { completed, failed, promptTokens, outputTokens };
}
