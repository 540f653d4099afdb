/**
 * Jobs over batch files, for the functions of batch.ts and for compy's own commands. Some functions inspect a
 * job that another process may run; others are parts from which a command builds a job.
 */
import type { Engine } from "../../engine/mod.ts";
import { checkInput, type Examine, type InputLimits, inputLimits } from "../../jobs/check.ts";
import { BatchError } from "../../jobs/errors.ts";
import {
  type ExecuteWith,
  forecastSeconds,
  type LineTokens,
  type Measured,
  measureLines,
  Sample,
  TokenCounter,
} from "../../jobs/run/forecast.ts";
import { type OpenInput, openJsonLines } from "../../jobs/input.ts";
import { cancelledLine, forgetCancel, readStatus, requestCancel } from "../../jobs/run/job_control.ts";
import type { Counts, JobIdentity } from "../../jobs/journal/journal_format.ts";
import type { BatchRequest, LineRefusal } from "../../jobs/request.ts";
import { type JobFiles, runBatch } from "../../jobs/run/runner.ts";
import { countAnswers, type JobState, readJobState } from "../../jobs/status.ts";
import { diskStorage } from "../../jobs/journal/storage.ts";
import { LINE_LIMITS } from "./lines.ts";

export type { Asked } from "../../jobs/asked.ts";
export type { Examine } from "../../jobs/check.ts";
export { BatchError } from "../../jobs/errors.ts";
export type { Execute, LineChanges } from "../../jobs/run/dispatch.ts";
export type { ExecuteWith as ExecuteOn, Measured } from "../../jobs/run/forecast.ts";
export { firstLines, type OpenInput, openJsonLines } from "../../jobs/input.ts";
export type { ModelIdentity } from "../../jobs/model_identity.ts";
export { ProgressMeter, type ProgressView } from "../../jobs/progress.ts";
export type { LineRefusal } from "../../jobs/request.ts";
export { Retry, RETRY_AGAIN } from "../../jobs/run/retry.ts";
export type { Revision } from "../../jobs/run/revision.ts";
export {
  type AnswerOrder,
  type BatchEvent,
  type BatchProgress,
  type BatchResult,
  type JobFiles,
} from "../../jobs/run/runner.ts";
export {
  type JobOptions,
  type LineEngine,
  linesInFlight,
  MOST_SEQUENCES,
  runJob,
  withoutAlias,
} from "../../jobs/setup.ts";
export { readLines } from "../../jobs/lines.ts";
export { diskStorage } from "../../jobs/journal/storage.ts";
export { execute } from "../../routes/execute.ts";
export { GENERATION_URLS } from "../../routes/generations.ts";
export { lineEngine, type OpenedEngine, openedEngine, refuseUnsupported } from "./lines.ts";
export { type InputLimits, inputLimits, LINE_LIMITS };

/** The progress of a job. */
export interface JobStatus {
  readonly state: "running" | "stopped" | "done" | "failed";
  /** Number of lines in the job. */
  readonly total: number;
  readonly counts: Counts;
  /** Tokens per second of a running job, and its remaining seconds; null if unknown. */
  readonly promptRate: number | null;
  readonly outputRate: number | null;
  readonly remaining: number | null;
  /** The reason why the job has failed; null if it has not. */
  readonly reason: string | null;
}

/**
 * Returns the status of the job with this output. A running job's status comes from the status file that its
 * process writes, a stopped job's from its journal. Throws BatchError if there is no job.
 */
export async function jobStatus(output: string): Promise<JobStatus> {
  const { identity, ended, running } = await readJobState(diskStorage, output);
  const nothing = { promptRate: null, outputRate: null, remaining: null, reason: null };
  const total = identity.lineCount;
  if (ended?.state === "done") return { ...nothing, state: "done", total, counts: ended.counts };
  const live = running ? await readStatus(output) : undefined;
  if (live !== undefined) {
    return { ...nothing, ...live, state: "running", total, counts: live.progress };
  }
  const counts = await countAnswers(diskStorage, output, identity);
  if (ended !== undefined) return { ...nothing, state: "failed", total, counts, reason: ended.reason };
  return { ...nothing, state: running ? "running" : "stopped", total, counts };
}

/** Returns the identity of a job; undefined if there is no job. */
export async function jobIdentity(output: string): Promise<JobIdentity | undefined> {
  try {
    return (await readJobState(diskStorage, output)).identity;
  } catch (error) {
    if (error instanceof BatchError && error.code === "no_job") return undefined;
    throw error;
  }
}

/** Milliseconds between two checks of a job that another process runs. */
const POLL_MS = 100;

/**
 * Ends a job for good, whichever process runs it, and resolves to its counts when it has ended. Throws
 * BatchError if there is no job, or it has already ended.
 */
export async function cancelJob(files: JobFiles, openInput: OpenInput = openJsonLines): Promise<Counts> {
  const { output } = files;
  let state = await readJobState(diskStorage, output);
  if (state.ended !== undefined) throw hasEnded(output, state);
  await requestCancel(output);
  while (state.running) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    state = await readJobState(diskStorage, output);
  }
  if (state.ended === undefined) {
    const { settings } = state.identity;
    const connect = () => Promise.resolve({ execute: () => Promise.reject(), settings });
    const cancelSignal = AbortSignal.abort(cancelledLine());
    await runBatch({ ...files, openInput, parallel: 1, limits: LINE_LIMITS, connect, cancelSignal });
    state = await readJobState(diskStorage, output);
  }
  await forgetCancel(output);
  if (state.ended?.state !== "done") throw hasEnded(output, state);
  return state.ended.counts;
}

function hasEnded(output: string, { ended }: JobState): BatchError {
  const how = ended?.state === "failed" ? `has failed: ${ended.reason}` : "is done";
  return new BatchError("job_failed", `Cannot cancel the job of "${output}": it ${how}`, false);
}

/** The result of one pass over an input. */
export interface CheckedInput {
  readonly lines: number;
  readonly bad: number;
  /** Size of the file in bytes. */
  readonly bytes: number;
}

/** Checks every line of an input and calls `onRefusal` for each bad one, in order. */
export async function checkJob(
  name: string,
  { openInput = openJsonLines, endpoint, onRefusal, examine, signal }: {
    readonly openInput?: OpenInput;
    /** The endpoint that all lines must name. */
    readonly endpoint?: string;
    readonly onRefusal: (refusal: LineRefusal) => void;
    readonly examine?: Examine;
    readonly signal?: AbortSignal;
  },
): Promise<CheckedInput> {
  const input = await openInput(diskStorage, name);
  try {
    const limits = { ...LINE_LIMITS, ...(endpoint === undefined ? {} : { endpoint }) };
    const check = await checkInput(input, name, limits, onRefusal, { signal, examine });
    return { lines: check.lineCount, bad: check.refusedCount, bytes: check.size };
  } finally {
    input.close();
  }
}

/** The estimated cost of a job. */
export interface JobForecast extends CheckedInput {
  /** Tokens of all prompts, of the longest prompt, and the maximum tokens of all answers together. */
  readonly prompt: number;
  readonly longest: number;
  readonly answer: number;
  /** Measurements of sample lines; undefined if none can run. */
  readonly measured: Measured | undefined;
  /** Estimated seconds for all lines on this machine. */
  readonly seconds: number;
}

/** Number of sample lines per sequence that runs at once. */
const SAMPLES = 3;

/** Counts the tokens of all lines and answers a sample of them to estimate the time. Writes nothing. */
export async function forecastJob(
  name: string,
  { engine, execute, parallel, ...options }: {
    readonly engine: Engine;
    readonly execute: ExecuteWith;
    readonly parallel: number;
    readonly openInput: OpenInput;
    readonly onRefusal: (refusal: LineRefusal) => void;
    readonly signal: AbortSignal;
  },
): Promise<JobForecast> {
  const counter = new TokenCounter(engine, execute);
  const sample = new Sample<{ request: BatchRequest; tokens: LineTokens }>(SAMPLES * parallel);
  const totals = { prompt: 0, answer: 0, longest: 0 };
  const examine = async (request: BatchRequest) => {
    const tokens = await counter.tokensOf(request);
    if ("code" in tokens) return { ...tokens, param: null };
    totals.prompt += tokens.prompt;
    totals.answer += tokens.answer;
    totals.longest = Math.max(totals.longest, tokens.prompt);
    sample.add({ request, tokens });
  };
  const checked = await checkJob(name, { ...options, examine });
  const good = checked.lines - checked.bad;
  const measured = good === 0
    ? undefined
    : await measureLines(engine, execute, sample.chosen, parallel, options.signal);
  const seconds = measured === undefined ? 0 : forecastSeconds(good, totals.prompt, measured);
  return { ...checked, ...totals, measured, seconds };
}
