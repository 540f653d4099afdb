import type { Engine } from "../engine/types.ts";
import { BatchError } from "../jobs/errors.ts";
import { JsonReporter, type Reporter, TextReporter } from "../jobs/reporter.ts";
import { runBatch } from "../jobs/runner.ts";
import type { BatchWorld, CommandHost, EngineOptions } from "./batch_world.ts";
import { UsageError } from "./flags.ts";

/** A terminal's Ctrl-C can reach the process twice, directly and through the task runner. */
const SAME_INTERRUPT_MS = 300;

export interface JobArguments {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
  readonly engine: EngineOptions;
  /** Refuse the job when any line is bad. */
  readonly strict: boolean;
  readonly json: boolean;
}

/** Runs a job in this process and tells how it goes. Returns the exit code. */
export async function runJob(run: JobArguments, { host, openEngine, execute }: BatchWorld): Promise<number> {
  const reporter = run.json ? new JsonReporter(host, run) : new TextReporter(host, run);
  const { drainSignal, signal, release } = listenForInterrupts(host, reporter);
  const timer = setInterval(() => reporter.tick(), reporter.every);
  let engine: Engine | undefined;
  try {
    const result = await runBatch({
      input: run.input,
      output: run.output,
      errors: run.errors,
      parallel: run.engine.parallel,
      strict: run.strict,
      drainSignal,
      signal,
      onEvent: (event) => reporter.event(event),
      connect: async () => {
        const opened = engine = await openEngine(run.engine);
        const { id, path } = opened.model;
        return {
          execute: (request) => execute(opened, request),
          settings: { "model": id, "model file size": await host.fileSize(path) },
        };
      },
    });
    reporter.end(result);
    return result.state === "stopped" ? 1 : 0;
  } catch (error) {
    if (error instanceof BatchError && error.code === "same_file") throw new UsageError(error.message);
    reporter.fail(
      error instanceof Error ? error.message : String(error),
      (error as BatchError).resumable ?? true,
    );
    return 1;
  } finally {
    clearInterval(timer);
    await engine?.close();
    release();
  }
}

function listenForInterrupts(host: CommandHost, reporter: Reporter) {
  const drain = new AbortController();
  const now = new AbortController();
  let drainedAt = 0;
  const release = host.onInterrupt(() => {
    if (!drain.signal.aborted) {
      drainedAt = host.now();
      drain.abort();
      reporter.note("Stopping when the lines in flight have ended; Ctrl-C again stops now");
    } else if (host.now() - drainedAt > SAME_INTERRUPT_MS) {
      now.abort();
      // A third one ends the process as if nobody listened.
      release();
    }
  });
  return { drainSignal: drain.signal, signal: now.signal, release };
}
