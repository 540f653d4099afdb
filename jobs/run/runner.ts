import { dirname, resolve } from "@std/path";
import { JobIds, refusalRecord } from "../answers.ts";
import { checkInput, type Examine, type InputCheck, type InputLimits } from "../check.ts";
import { dispatch, type Execute, type LineChanges } from "./dispatch.ts";
import { BatchError } from "../errors.ts";
import { Journal } from "../journal/journal.ts";
import type { AnswerOrder, Counts, DoneJob, JobIdentity, JournalRecord } from "../journal/journal_format.ts";
import { type JobInput, type OpenInput, openJsonLines } from "../input.ts";
import { checkUnchanged, statOf } from "./input_version.ts";
import type { OutputForm } from "../output_form.ts";
import { LookAhead } from "./look_ahead.ts";
import type { ModelIdentity } from "../model_identity.ts";
import { partialPath, writeOutputs } from "../outputs.ts";
import { Pace } from "./pace.ts";
import type { LineRefusal } from "../request.ts";
import { diskStorage, type Storage } from "../journal/storage.ts";

export type { Execute, LineChanges } from "./dispatch.ts";
export type { AnswerOrder } from "../journal/journal_format.ts";

/** The files of a job. */
export interface JobFiles {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
}

export interface BatchOptions extends JobFiles, LineChanges {
  /** Called once, when there are lines to answer. */
  readonly connect: () => Promise<Connected>;
  /**
   * Number of lines in progress. With `most`, the number at the start; it grows up to `most` while that speeds up the
   * job.
   */
  readonly parallel: number;
  readonly most?: number;
  readonly storage?: Storage;
  /** Reads the input and writes the output; by default both are JSONL. */
  readonly openInput?: OpenInput;
  readonly limits: InputLimits;
  /** Finds further faults in a line before the job runs. The fault is reported and becomes the line's error. */
  readonly examine?: Examine;
  /** Whether to refuse the whole job before it runs if any line is bad. */
  readonly strict?: boolean;
  /** Number of lines to answer, from the first. A later run continues with the rest. */
  readonly limit?: number;
  /** Order of the lines in the output and error files: as in the input (default), or in order of completion. */
  readonly order?: AnswerOrder;
  /** Milliseconds that a line waits for an engine that reports that it is busy (429, 503). */
  readonly patienceMs?: number;
  /** On abort, the job takes no new lines, finishes the lines in progress, and stops. */
  readonly drainSignal?: AbortSignal;
  /** On abort, the job stops at once. */
  readonly signal?: AbortSignal;
  /** On abort, the job ends: lines without an answer get the signal's reason, an UnansweredLine, as error. */
  readonly cancelSignal?: AbortSignal;
  readonly onEvent?: (event: BatchEvent) => void;
}

/** The engine or workers that answer the lines of a job. */
export interface Connected {
  readonly execute: Execute;
  /** Identity of the model. A job resumes only with the model with which it began. */
  readonly settings: ModelIdentity;
  /** The instruction set or GPU that computes. A job may resume on a different one. */
  readonly processor?: string;
}

export type BatchEvent =
  | { readonly type: "refused"; readonly refusal: LineRefusal }
  /** Event: the answers so far were computed on `before`, which rounds differently from `now`. */
  | { readonly type: "other_processor"; readonly before: string; readonly now: string }
  /**
   * `progress` includes the answers of earlier runs. `lines` is the input's line count. `cutBytes` is the size of a
   * half-written answer that was dropped.
   */
  | {
    readonly type: "started";
    readonly progress: BatchProgress;
    readonly lines: number;
    readonly cutBytes: number;
  }
  /** Event: further lines have a durable answer. */
  | { readonly type: "progress"; readonly progress: BatchProgress }
  /** Event: all lines are answered, and the outputs are being written. */
  | { readonly type: "finishing" };

export interface BatchProgress extends Readonly<Counts> {
  /** Lines that will be answered at the end of this run. */
  readonly total: number;
  /** Bytes of all lines and of the answered lines, because line sizes differ. */
  readonly totalBytes: number;
  readonly doneBytes: number;
  /** Prompt tokens that this run found in the prefix cache. */
  readonly cachedTokens: number;
  /** Reasoning tokens that this run generated. */
  readonly reasoningTokens: number;
}

export interface BatchResult {
  /**
   * "already_done": an earlier run finished the job. "stopped": a signal stopped it; the same options resume it.
   * "limited": the first lines are answered and in the output; the same options without a limit continue.
   */
  readonly state: "done" | "already_done" | "stopped" | "limited";
  readonly counts: Readonly<Counts>;
}

const DEFAULT_PATIENCE_MS = 10 * 60 * 1000;
/** Maximum lines in progress in a cancelled job, whose lines only cost a journal record. */
const CANCELLED_AT_ONCE = 256;

/** Returns the path of a job's journal. A small journal stays after the job, to record that it is done. */
export function journalPath(output: string): string {
  return `${output}.journal`;
}

/**
 * Answers every line of a batch file exactly once: in `output` for status 200, else in `errors`. Called again after a
 * stop or a crash, it resumes. Throws BatchError.
 */
export async function runBatch(options: BatchOptions): Promise<BatchResult> {
  checkPaths(options);
  const signal = options.signal ?? new AbortController().signal;
  const drainSignal = AbortSignal.any([signal, options.drainSignal ?? signal]);
  const job = new Job(options, options.storage ?? diskStorage, signal, drainSignal);
  try {
    return await job.run();
  } catch (error) {
    const byStop = error === drainSignal.reason || (error as Error | null)?.name === "AbortError";
    if (drainSignal.aborted && byStop) return { state: "stopped", counts: job.counts };
    throw error;
  } finally {
    job.close();
  }
}

class Job {
  private input: JobInput | undefined;
  private journal: Journal | undefined;
  private readonly limits: InputLimits;
  private doneBytes = 0;
  /** Number and bytes of the lines that will be answered at the end of this run. */
  private readonly wanted = { total: 0, totalBytes: 0 };
  private cachedTokens = 0;
  private reasoningTokens = 0;

  constructor(
    private readonly options: BatchOptions,
    private readonly storage: Storage,
    private readonly signal: AbortSignal,
    private readonly drainSignal: AbortSignal,
  ) {
    this.limits = options.limits;
  }

  get counts(): Counts {
    return this.journal?.counts ?? { completed: 0, failed: 0, promptTokens: 0, outputTokens: 0 };
  }

  async run(): Promise<BatchResult> {
    const { input: name, connect, onEvent, examine, openInput = openJsonLines } = this.options;
    const version = (await statOf(this.storage, name))?.version;
    const open = () => openInput(this.storage, name);
    const input = this.input = await open();
    const refused = (refusal: LineRefusal) => onEvent?.({ type: "refused", refusal });
    const check = await checkInput(input, name, this.limits, refused, {
      signal: this.drainSignal,
      examine,
    });

    if (this.options.strict && check.refusedCount > 0) throw linesRefused(name, check);
    // The journal is created after the engine is loaded, so that a mistyped model name leaves no files.
    const path = journalPath(this.options.output);
    if (await statOf(this.storage, path) === undefined) await this.refuseOverwriting();
    else this.journal = await this.openJournal(path, check);
    if (this.journal?.ended !== undefined) return this.earlierEnd(this.journal);
    const { execute, settings, processor } = await connect();
    this.drainSignal.throwIfAborted();
    const journal = this.journal ??= await this.openJournal(path, check);
    if (journal.ended !== undefined) return this.earlierEnd(journal);

    try {
      const identity = { ...identityOf(check, input), settings, processor };
      await journal.begin(identity);
      const before = journal.processor;
      if (processor !== undefined && before !== undefined && before !== processor) {
        onEvent?.({ type: "other_processor", before, now: processor });
      }
      await this.answerAll(input, journal, check, execute, new JobIds(identity));
      const first = journal.firstAnswered;
      if (first < this.endOf(check) || this.signal.aborted) return { state: "stopped", counts: this.counts };
      const { limits, signal } = this;
      await checkUnchanged(this.storage, { name, open, version, check, limits, signal });
      const isWhole = first === check.lineCount;
      return isWhole
        ? await this.finish(journal, input.output)
        : await this.showFirst(journal, input.output, first);
    } catch (error) {
      if (error instanceof BatchError && error.code === "sync_failed") {
        // On a failing disk, this write may fail too. Every answer is still verified by its CRC.
        await journal.finish({ state: "failed", reason: error.message }).catch(() => {});
      }
      throw error;
    }
  }

  close(): void {
    this.input?.close();
    this.journal?.close();
  }

  private async openJournal(path: string, check: InputCheck): Promise<Journal> {
    const journal = this.journal = await Journal.open(this.storage, path);
    if (!journal.begun) await this.refuseOverwriting();
    journal.checkIdentity(identityOf(check, this.input!));
    return journal;
  }

  /** Returns the number of lines that this run answers, from the first. */
  private endOf({ lineCount }: InputCheck): number {
    return Math.min(this.options.limit ?? lineCount, lineCount);
  }

  private async answerAll(
    input: JobInput,
    journal: Journal,
    check: InputCheck,
    execute: Execute,
    ids: JobIds,
  ) {
    const end = this.endOf(check);
    for (let index = 0; index < check.lineCount; index++) {
      const isDone = journal.has(index);
      if (isDone) this.doneBytes += check.lengths[index];
      if (!isDone && index >= end) continue;
      this.wanted.total += 1;
      this.wanted.totalBytes += check.lengths[index];
    }
    const { cutBytes } = journal;
    this.options.onEvent?.({ type: "started", progress: this.progress(), lines: check.lineCount, cutBytes });

    const store = async (records: JournalRecord[]) => {
      await Promise.all(records.map((record) => journal.append(record)));
      for (const { index } of records) this.doneBytes += check.lengths[index];
      this.options.onEvent?.({ type: "progress", progress: this.progress() });
    };
    const lines = new LookAhead({
      from: input,
      name: this.options.input,
      check,
      limits: this.limits,
      end,
      skip: (index) => journal.has(index),
      refuse: (lines) =>
        store(lines.map((line) => refusalRecord(ids, line.index, line, this.limits.refusalBody))),
    });
    const { cancelSignal, patienceMs = DEFAULT_PATIENCE_MS } = this.options;
    const from = cancelSignal?.aborted ? CANCELLED_AT_ONCE : this.options.parallel;
    const to = Math.max(from, this.options.most ?? from);
    await dispatch({
      ...this.options,
      execute,
      ids,
      parallel: to,
      pace: new Pace({ from, to }),
      patienceMs,
      onTokens: ({ cached, reasoning }) => {
        this.cachedTokens += cached;
        this.reasoningTokens += reasoning;
      },
      next: () => lines.next(),
      store,
      drainSignal: this.drainSignal,
      signal: this.signal,
    });
  }

  private progress(): BatchProgress {
    const { wanted, doneBytes, cachedTokens, reasoningTokens } = this;
    return { ...this.counts, ...wanted, doneBytes, cachedTokens, reasoningTokens };
  }

  private async finish(journal: Journal, form: OutputForm): Promise<BatchResult> {
    const { order = "input" } = this.options;
    const counts = { ...journal.counts };
    const bytes = await this.write(journal.records(order), form);
    await journal.finish({ state: "done", order, counts, ...bytes });
    return { state: "done", counts };
  }

  /**
   * Writes the answers of the first lines. The journal keeps all answers, so a later run writes the outputs again and
   * loses no line.
   */
  private async showFirst(journal: Journal, form: OutputForm, first: number): Promise<BatchResult> {
    const counts = { completed: 0, failed: 0, promptTokens: 0, outputTokens: 0 };
    await this.write(counted(journal.records(this.options.order, first), counts), form);
    return { state: "limited", counts };
  }

  private async write(records: AsyncIterable<JournalRecord>, form: OutputForm) {
    const { output, errors, onEvent } = this.options;
    onEvent?.({ type: "finishing" });
    return await writeOutputs(this.storage, records, output, errors, { form, signal: this.signal });
  }

  /** Returns the result of a job that ended earlier. Throws BatchError when it failed or has an unfinished merge. */
  private async earlierEnd({ path, ended }: Journal): Promise<BatchResult> {
    if (ended?.state !== "done") {
      const message =
        `This job has failed for good: ${ended?.reason}. When the disk works reliably again, remove ` +
        `"${path}" to start over`;
      throw new BatchError("job_failed", message, false);
    }
    if (ended.retry?.state === "merging") {
      const message =
        `A retry of this job's errors was stopped while it replaced "${this.options.output}": run the ` +
        "same retry-errors command again, which finishes that first";
      throw new BatchError("job_unfinished", message, true);
    }
    await checkOutputs(this.storage, this.options, ended);
    return { state: "already_done", counts: ended.counts };
  }

  /** Throws BatchError when an output exists: a file without a journal does not belong to this job. */
  private async refuseOverwriting(): Promise<void> {
    for (const path of [this.options.output, this.options.errors]) {
      if (await statOf(this.storage, dirname(path)) === undefined) {
        throw new BatchError(
          "output_unwritable",
          `Cannot write "${path}": there is no folder "${dirname(path)}"`,
          false,
        );
      }
      if (await statOf(this.storage, path) === undefined) continue;
      const message = `"${path}" exists and does not belong to this job; move it away or give another name`;
      throw new BatchError("output_exists", message, false);
    }
  }
}

/** Throws BatchError when an output of a done job is missing or has another size. */
export async function checkOutputs(
  storage: Storage,
  { output, errors }: Pick<JobFiles, "output" | "errors">,
  { outputBytes, errorBytes }: DoneJob,
): Promise<void> {
  for (const [file, bytes] of [[output, outputBytes], [errors, errorBytes]] as const) {
    const found = await statOf(storage, file);
    if (found?.size === bytes || (bytes === 0 && found === undefined)) continue;
    const state = found === undefined ? "is gone" : `has ${found.size} bytes now instead of ${bytes}`;
    const message =
      `This job is done, but "${file}" ${state}. To run it again remove "${journalPath(output)}" ` +
      "(and the old output)";
    throw new BatchError("output_missing", message, false);
  }
}

function linesRefused(name: string, { refusedCount, lineCount }: InputCheck): BatchError {
  const message =
    `"${name}" must have no bad lines in a strict job (got ${refusedCount} of ${lineCount}): nothing was run`;
  return new BatchError("lines_refused", message, false);
}

/** Returns the identity of an input, as a journal records it. */
export function identityOf(
  { identity, size, lineCount }: InputCheck,
  { asked }: JobInput,
): Omit<JobIdentity, "settings"> {
  return { input: identity, inputSize: size, lineCount, ...(asked && { asked }) };
}

async function* counted(
  records: AsyncIterable<JournalRecord>,
  counts: Counts,
): AsyncGenerator<JournalRecord> {
  for await (const record of records) {
    counts[record.completed ? "completed" : "failed"] += 1;
    counts.promptTokens += record.promptTokens;
    counts.outputTokens += record.outputTokens;
    yield record;
  }
}

function checkPaths({ input, output, errors }: BatchOptions): void {
  const paths = [input, output, errors, journalPath(output), partialPath(output), partialPath(errors)];
  const seen = new Map<string, string>();
  for (const path of paths) {
    const other = seen.get(resolve(path));
    if (other !== undefined) {
      const message =
        `"${path}" would be two files of this job at once; give input, output and errors different names`;
      throw new BatchError("same_file", message, false);
    }
    seen.set(resolve(path), path);
  }
}
