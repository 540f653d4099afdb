import { JsonReporter, TextReporter } from "./reporter.ts";
import { openRunWorkers } from "./nats.ts";
import { JobLink } from "../../lib/batch/job_link.ts";
import {
  type AnswerOrder,
  BatchError,
  type BatchResult,
  type Examine,
  type Execute,
  type InputLimits,
  LINE_LIMITS,
  type LineEngine,
  linesOf,
  type OpenInput,
  runBatch,
} from "../../lib/batch/jobs.ts";
import { linesInFlight, withAliases } from "../../lib/batch/lines.ts";
import type { NatsTarget } from "../../lib/batch/workers.ts";
import { AUTO_PARALLEL, type BatchWorld, type CommandHost, type EngineOptions } from "./world.ts";
import { UsageError } from "../shared/flags.ts";
import { inFlags } from "../shared/words.ts";

/** A terminal's Ctrl-C can reach the process twice, directly and through the task runner. */
const SAME_INTERRUPT_MS = 300;

export interface JobArguments {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
  readonly engine: EngineOptions;
  /** How the input is read and the output written; by default both are JSONL. */
  readonly openInput?: OpenInput;
  /** Names that lines may give the model besides its own. */
  readonly aliases?: readonly string[];
  /** Finds what else is wrong with a line. */
  readonly examine?: Examine;
  /** Number of lines to answer, counted from the first; default all. */
  readonly limit?: number;
  /** Answers as `execute` does; what the job can not use is a failure of its line. */
  readonly judged?: (execute: Execute) => Execute;
  /** Where workers are that answer the lines; without it an engine in this process does. */
  readonly nats?: NatsTarget;
  /** What lines may be; by default any that the server's batches take. */
  readonly limits?: InputLimits;
  /** Refuse the job when any line is bad. */
  readonly strict: boolean;
  /** Of the answers, in the output; by default that of the input. */
  readonly order?: AnswerOrder;
  readonly json: boolean;
}

type JobCounts = Pick<BatchResult["counts"], "completed" | "failed">;

/** Lines in flight at first, without --parallel. */
const FIRST_PARALLEL = 24;

function inFlight({ engine: { parallel }, nats }: JobArguments): { parallel: number; most?: number } {
  if (nats !== undefined && parallel !== undefined) return { parallel };
  if (parallel === undefined) return { parallel: FIRST_PARALLEL, most: linesInFlight(AUTO_PARALLEL) };
  return { parallel: linesInFlight(parallel) };
}

/** 0 where lines were answered, and with `failOnErrors` all of them. */
export function exitCodeOf({ completed, failed }: JobCounts, failOnErrors: boolean): number {
  return completed === 0 || failOnErrors && failed > 0 ? 1 : 0;
}

/** Runs a job in this process and reports its progress. What became of it; undefined where it has stopped or failed. */
export async function runJob(run: JobArguments, world: BatchWorld): Promise<BatchResult | undefined> {
  const { host } = world;
  const reporter = run.json ? new JsonReporter(host, run) : new TextReporter(host, run);
  const { drainSignal, signal, release } = listenForInterrupts(
    host,
    () => reporter.note("Stopping when the lines in flight are done; press Ctrl-C again to stop now"),
  );
  const timer = setInterval(() => reporter.tick(), reporter.every);
  const link = new JobLink(run.output, () => host.now(), () => {
    reporter.note("Cancelled: lines without an answer will get none");
  });
  const { judged = (execute) => execute, aliases = [] } = run;
  let engine: LineEngine | undefined;
  let ended = false;
  try {
    const result = await runBatch({
      input: run.input,
      output: run.output,
      errors: run.errors,
      openInput: run.openInput,
      limits: run.limits ?? LINE_LIMITS,
      ...inFlight(run),
      order: run.order,
      examine: run.examine,
      strict: run.strict,
      limit: run.limit,
      drainSignal,
      signal,
      onEvent: (event) => {
        reporter.event(event);
        link.event(event);
      },
      connect: async () => {
        engine = run.nats === undefined
          ? linesOf(await world.openEngine({ ...run.engine, reload: true }), world.execute)
          : await openRunWorkers(run.nats, run.engine, { drainSignal, note: (text) => reporter.note(text) });
        return { ...engine, execute: link.wrap(judged(withAliases(aliases, engine.execute))) };
      },
    });
    ended = result.state === "done" || result.state === "already_done";
    reporter.end(result);
    return result.state === "stopped" ? undefined : result;
  } catch (error) {
    if (error instanceof BatchError && error.code === "same_file") throw new UsageError(inFlags(error));
    reporter.fail(inFlags(error), (error as BatchError).resumable ?? true);
    return undefined;
  } finally {
    clearInterval(timer);
    await link.close(ended);
    await engine?.close();
    release();
  }
}

/** The first Ctrl-C or SIGTERM asks to drain, the second one to stop now, a third one ends the process. */
export function listenForInterrupts(host: CommandHost, onDrain: () => void) {
  const drain = new AbortController();
  const now = new AbortController();
  let drainedAt = 0;
  const release = host.onInterrupt(() => {
    if (!drain.signal.aborted) {
      drainedAt = host.now();
      drain.abort();
      onDrain();
    } else if (host.now() - drainedAt > SAME_INTERRUPT_MS) {
      now.abort();
      // A third one ends the process as if nobody listened.
      release();
    }
  });
  return { drainSignal: drain.signal, signal: now.signal, release };
}
