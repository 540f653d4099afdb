import { JsonReporter, TextReporter } from "./reporter.ts";
import { openRunWorkers } from "./nats.ts";
import {
  BatchError,
  type BatchResult,
  type InputLimits,
  type JobOptions,
  LINE_LIMITS,
  lineEngine,
  refuseUnsupported,
  runJob,
} from "../../lib/batch/jobs.ts";
import { withImages } from "../../lib/batch/image_folder.ts";
import type { NatsTarget } from "../../lib/batch/workers.ts";
import { type BatchWorld, type CommandHost, type EngineOptions } from "./world.ts";
import { UsageError } from "../shared/flags.ts";
import { inFlags } from "../shared/words.ts";

/** Milliseconds within which two interrupts count as one Ctrl-C, which may also arrive through the task runner. */
const SAME_INTERRUPT_MS = 300;

/** A job as a command runs it, with the command's options. */
export interface CommandJob extends Omit<JobOptions, "connect" | "limits"> {
  readonly engine: EngineOptions;
  /** The NATS server of the workers that answer the lines; by default an engine in this process answers them. */
  readonly nats?: NatsTarget;
  /** Whether to refuse lines with parameters that their endpoint does not support. */
  readonly strictParameters?: boolean;
  /** Limits of valid lines; by default those of a server's batch. */
  readonly limits?: InputLimits;
  readonly json: boolean;
}

type JobCounts = Pick<BatchResult["counts"], "completed" | "failed">;

/** Returns exit code 0 if lines were answered; with `failOnErrors`, only if none failed. */
export function exitCodeOf({ completed, failed }: JobCounts, failOnErrors: boolean): number {
  return completed === 0 || failOnErrors && failed > 0 ? 1 : 0;
}

/** Runs a job and reports its progress. Returns its result, or undefined if it stopped or failed. */
export async function runCommandJob(job: CommandJob, world: BatchWorld): Promise<BatchResult | undefined> {
  const { host } = world;
  const { engine, nats, json, strictParameters = false, limits = LINE_LIMITS, ...options } = job;
  const reporter = json ? new JsonReporter(host, job) : new TextReporter(host, job);
  const note = (text: string) => reporter.note(text);
  const { drainSignal, signal, release } = listenForInterrupts(
    host,
    () => note("Stopping when the lines in flight are done; press Ctrl-C again to stop now"),
  );
  const timer = setInterval(() => reporter.tick(), reporter.every);
  try {
    const result = await runJob({
      ...options,
      limits,
      // With workers, --parallel counts the lines in progress on all of them together.
      ...(nats === undefined ? { sequences: engine.parallel } : { lines: engine.parallel }),
      drainSignal,
      signal,
      onEvent: (event) => reporter.event(event),
      onCancel: () => note("Cancelled: lines without an answer will get none"),
      connect: async () => {
        const lines = nats === undefined
          ? lineEngine(await world.openEngine({ ...engine, reload: true }), world.execute)
          : await openRunWorkers(nats, engine, { drainSignal, note });
        const seeing = withImages(lines, world.images);
        return strictParameters ? refuseUnsupported(seeing) : seeing;
      },
    });
    reporter.end(result);
    return result.state === "stopped" ? undefined : result;
  } catch (error) {
    if (error instanceof BatchError && error.code === "same_file") throw new UsageError(inFlags(error));
    reporter.fail(inFlags(error), (error as BatchError).resumable ?? true);
    return undefined;
  } finally {
    clearInterval(timer);
    release();
  }
}

/**
 * Aborts `drainSignal` at the first Ctrl-C, SIGTERM or hang-up and `signal` at the second one. A third one ends the
 * process.
 */
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
      // After this, a further Ctrl-C ends the process, because the handlers are gone.
      release();
    }
  });
  return { drainSignal: drain.signal, signal: now.signal, release };
}
