import { readFile, rename, writeFile } from "node:fs/promises";
import { UnansweredLine } from "./dispatch.ts";
import { errorCode } from "../errors.ts";
import { diskStorage } from "../journal/storage.ts";
import { ProgressMeter } from "../progress.ts";
import type { BatchEvent, BatchProgress } from "./runner.ts";

/*
 * Files beside the output that let other processes follow and stop a running job. OUT.jsonl.status holds its progress
 * and is rewritten while it runs; the journal stays the record. OUT.jsonl.cancel asks the job to end.
 */

/** The progress of a running job, as its process last wrote it to the status file. */
export interface LiveStatus {
  readonly progress: BatchProgress;
  readonly promptRate: number;
  readonly outputRate: number;
  /** Estimated remaining seconds; null while unknown. */
  readonly remaining: number | null;
}

function statusPath(output: string): string {
  return `${output}.status`;
}

function cancelPath(output: string): string {
  return `${output}.cancel`;
}

/**
 * Replaces the whole status file by a rename, so that no reader sees half of it. Ignores failures: the file is
 * optional.
 */
async function writeStatus(output: string, status: LiveStatus): Promise<void> {
  const path = statusPath(output);
  try {
    await writeFile(`${path}.partial`, JSON.stringify(status));
    await rename(`${path}.partial`, path);
  } catch {
    // A full disk is reported by the job itself.
  }
}

/** Returns the status of a job; undefined if its status file is missing or is not JSON. */
export async function readStatus(output: string): Promise<LiveStatus | undefined> {
  try {
    return JSON.parse(await readFile(statusPath(output), "utf8"));
  } catch (error) {
    if (errorCode(error) === "ENOENT" || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function removeStatus(output: string): Promise<void> {
  for (const path of [statusPath(output), `${statusPath(output)}.partial`]) await diskStorage.remove(path);
}

/** Asks the process that runs the job now, or the next one that runs it, to end it. */
export async function requestCancel(output: string): Promise<void> {
  await writeFile(cancelPath(output), "");
}

async function isCancelRequested(output: string): Promise<boolean> {
  return await diskStorage.stat(cancelPath(output)) !== undefined;
}

export function forgetCancel(output: string): Promise<void> {
  return diskStorage.remove(cancelPath(output));
}

const TICK_MS = 500;

/** Writes the status file of a job that runs in this process, and notices when another process cancels the job. */
export class JobControl {
  readonly #meter = new ProgressMeter(() => performance.now());
  readonly #cancelled = new AbortController();
  #progress: BatchProgress | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #busy: Promise<void> = Promise.resolve();

  constructor(private readonly output: string, private readonly onCancel: () => void) {}

  /** Signal that aborts when the job is cancelled (`cancelSignal` of a batch's options). */
  get cancelSignal(): AbortSignal {
    return this.#cancelled.signal;
  }

  /** Aborts `cancelSignal` if a request to end the job exists, perhaps from before this process. */
  async check(): Promise<void> {
    if (this.#cancelled.signal.aborted || !await isCancelRequested(this.output)) return;
    this.#cancelled.abort(cancelledLine());
    this.onCancel();
  }

  /**
   * Handles an event of the job. The first event with progress starts the timer, because this process holds the
   * journal only then.
   */
  event(event: BatchEvent): void {
    if (event.type !== "started" && event.type !== "progress") return;
    this.#progress = event.progress;
    this.#meter.update(event.progress);
    this.#timer ??= setInterval(() => this.#busy = this.#busy.then(() => this.#tick()), TICK_MS);
  }

  /** Removes the status file. A request to cancel stays until the job has ended. */
  async close(hasEnded: boolean): Promise<void> {
    clearInterval(this.#timer);
    await this.#busy;
    if (this.#timer !== undefined) await removeStatus(this.output);
    if (hasEnded) await forgetCancel(this.output);
  }

  async #tick(): Promise<void> {
    await this.check();
    const view = this.#meter.view();
    if (view === undefined || this.#progress === undefined) return;
    const { promptRate, outputRate, remaining = null } = view;
    await writeStatus(this.output, { progress: this.#progress, promptRate, outputRate, remaining });
  }
}

/** Returns the error of a line without an answer in a cancelled job. */
export function cancelledLine(): UnansweredLine {
  return new UnansweredLine("batch_cancelled", "The job was cancelled before this line was answered");
}
