import { type Execute, UnansweredLine } from "../../jobs/run/dispatch.ts";
import {
  forgetCancel,
  isCancelRequested,
  type LiveStatus,
  removeStatus,
  writeStatus,
} from "../../jobs/run/job_control.ts";
import { ProgressMeter } from "../../jobs/progress.ts";
import type { BatchEvent, BatchProgress } from "../../jobs/run/runner.ts";

const EVERY_MS = 500;

/** Tells other processes how a job goes that runs in this one, and hears when they cancel it. */
export class JobLink {
  readonly #meter: ProgressMeter;
  readonly #cancelled = new AbortController();
  #progress: BatchProgress | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #busy: Promise<void> = Promise.resolve();
  /** The first line asks the disk: an earlier process may have been told. */
  #asked: Promise<boolean> | undefined;

  constructor(private readonly output: string, now: () => number, private readonly onCancel: () => void) {
    this.#meter = new ProgressMeter(now);
  }

  event(event: BatchEvent): void {
    if (event.type !== "started" && event.type !== "progress") return;
    this.#progress = event.progress;
    this.#meter.update(event.progress);
    // Only now this process holds the journal.
    this.#timer ??= setInterval(() => this.#busy = this.#busy.then(() => this.#tick()), EVERY_MS);
  }

  /** Answers as `execute` does until the job is cancelled; lines without an answer get none then. */
  wrap(execute: Execute): Execute {
    const { signal: cancelled } = this.#cancelled;
    return async (request) => {
      if (await this.#isCancelled()) throw unanswered();
      try {
        return await execute({ ...request, signal: AbortSignal.any([request.signal, cancelled]) });
      } catch (error) {
        throw cancelled.aborted ? unanswered() : error;
      }
    };
  }

  /** Takes away what others read; a cancellation that was asked for is kept until the job has ended. */
  async close(ended: boolean): Promise<void> {
    clearInterval(this.#timer);
    await this.#busy;
    if (this.#timer !== undefined) await removeStatus(this.output);
    if (ended) await forgetCancel(this.output);
  }

  async #isCancelled(): Promise<boolean> {
    this.#asked ??= isCancelRequested(this.output);
    if (await this.#asked) this.#cancel();
    return this.#cancelled.signal.aborted;
  }

  async #tick(): Promise<void> {
    if (await isCancelRequested(this.output)) this.#cancel();
    const view = this.#meter.view();
    if (view === undefined || this.#progress === undefined) return;
    const status: LiveStatus = {
      progress: this.#progress,
      promptRate: view.promptRate,
      outputRate: view.outputRate,
      remaining: view.remaining ?? null,
    };
    await writeStatus(this.output, status);
  }

  #cancel(): void {
    if (this.#cancelled.signal.aborted) return;
    this.#cancelled.abort();
    this.onCancel();
  }
}

/** What a line gets that nobody wants to be answered any more. */
export function unanswered(): UnansweredLine {
  return new UnansweredLine("batch_cancelled", "The job was cancelled before this line was answered");
}
