import type { Wording } from "../../engine/api/errors.ts";
import { askedDifference } from "../asked.ts";
import { checkInput, type InputCheck, type InputLimits, parseChecked } from "../check.ts";
import { CustomIds } from "../journal/custom_ids.ts";
import { BatchError, ioError } from "../errors.ts";
import { Journal } from "../journal/journal.ts";
import type { AnswerOrder, Counts, DoneJob } from "../journal/journal_format.ts";
import { type JobInput, type OpenInput, openJsonLines } from "../input.ts";
import type { RawLine } from "../lines.ts";
import { partialPath, showStaged, stageOutputs, writeOutputs } from "../outputs.ts";
import type { OutputLine } from "../output_form.ts";
import { RefusedLines } from "../journal/refused_lines.ts";
import { readResults, type ResultLine, ResultReader } from "../results.ts";
import { AS_BEFORE, revisedLine, type Revision } from "./revision.ts";
import { checkOutputs, identityOf, type JobFiles, journalPath } from "./runner.ts";
import { readJobState } from "../status.ts";
import type { Storage } from "../journal/storage.ts";

/*
 * Retries the failed lines of a job that is done. The job's journal records how far the retry has come, so a retry that
 * was killed at any point is resumed or finished, and never done twice:
 *
 *   done              the retry's files, if any, are leftovers
 *   done, "running"   OUT.retry-in has the failed lines; they run as a separate job with its own journal
 *   done, "merging"   the new outputs are complete beside the old ones, and replace them
 *   done              the retry's files are removed
 *
 * Lines are matched by custom_id, and lines that the check refused by their number in the input. The error file decides
 * which lines are retried. Lines of the output are copied unchanged: a retry never changes a good answer.
 */

/** Advice in the error after a failed sync during a retry. */
export const RETRY_AGAIN =
  "The answers of the job are unchanged. Once the disk works reliably, run the same retry-errors command again";

/** Returns the paths of the job that retries the failed lines of `output`. */
function retryFiles({ output }: JobFiles): JobFiles {
  return {
    input: `${output}.retry-in`,
    output: `${output}.retry`,
    errors: `${output}.retry-errors`,
  };
}

interface InputLine extends Pick<RawLine, "number" | "bytes"> {
  readonly customId: string | undefined;
}

/** One retry of a job's failed lines. The retry holds the job's journal until the retry is closed. */
export class Retry {
  /** The retry's files: run them as a job, with `order`, before `merge`. */
  readonly files: JobFiles;
  /** Whether an earlier retry was stopped in its merge and this one has finished it. */
  merged = false;

  private constructor(
    private readonly storage: Storage,
    private readonly job: JobFiles,
    private readonly limits: InputLimits,
    private readonly journal: Journal,
    private done: DoneJob,
    private readonly openInput: OpenInput,
  ) {
    this.files = retryFiles(job);
  }

  /**
   * Opens the finished job of `job.output`, and completes an interrupted merge of an earlier retry. Throws BatchError
   * if the job is missing or unfinished, or its files were changed.
   */
  static async open(
    storage: Storage,
    job: JobFiles,
    limits: InputLimits,
    openInput: OpenInput = openJsonLines,
  ): Promise<Retry> {
    if (!await isThere(storage, journalPath(job.output))) throw noJournal(job.output);
    const journal = await Journal.open(storage, journalPath(job.output));
    try {
      const { ended } = journal;
      if (ended?.state !== "done") throw notDone(job.output, ended?.reason);
      const retry = new Retry(storage, job, limits, journal, ended, openInput);
      await retry.step(async () => {
        // A failed sync may have lost the end record that was just read; only a new record is certainly durable.
        await journal.finish(ended);
        retry.merged = ended.retry?.state === "merging";
        if (retry.merged) await retry.replaceOutputs();
        else await checkOutputs(storage, job, ended);
      });
      return retry;
    } catch (error) {
      journal.close();
      throw error;
    }
  }

  /** The order of lines with which the retry must run. */
  get order(): AnswerOrder {
    return this.done.order ?? "input";
  }

  /** Counts of the job, without a retry that is not merged. */
  get counts(): Readonly<Counts> {
    return this.done.counts;
  }

  /**
   * Writes the retry's input unless an earlier run has done so; starts over if that retry has failed for good. Returns
   * whether there are lines to retry. Throws BatchError when an earlier retry began with other options.
   */
  prepare(revision: Revision = AS_BEFORE): Promise<boolean> {
    return this.step(() => this.makeInput(revision));
  }

  private async makeInput({ asked, revise }: Revision): Promise<boolean> {
    const { storage, files } = this;
    const { retry } = this.done;
    const isMade = retry?.state === "running" && await isThere(storage, files.input);
    if (isMade && !await this.hasFailed()) {
      const difference = askedDifference(retry.revised ?? {}, asked);
      if (difference === undefined) return true;
      throw this.begunOtherwise(difference);
    }
    await this.removeFiles();
    const order = this.done.order ?? await this.findOrder();
    const count = await this.writeFailedLines(revise);
    if (count === 0) {
      await this.removeFiles();
      return false;
    }
    const revised = Object.keys(asked).length > 0 ? { revised: asked } : {};
    await this.setDone({ ...this.done, order, retry: { state: "running", ...revised } });
    return true;
  }

  /** Returns the error for new options: starting over would repeat the retry's good answers. */
  private begunOtherwise(difference: Wording): BatchError {
    const what = `A retry of "${this.job.output}" was stopped, which was begun with `;
    const advice = ". Give the same options to finish it; a later retry may have others";
    return new BatchError("job_unfinished", [what, ...difference, advice], true);
  }

  /**
   * Moves the retry's good answers into the output and its failed lines into the error file, then removes the retry's
   * files. Returns the job's new counts.
   */
  merge(): Promise<Readonly<Counts>> {
    return this.step(() => this.mergeOutputs());
  }

  private async mergeOutputs(): Promise<Readonly<Counts>> {
    const { storage, job, files } = this;
    const { ended: retried } = await readJobState(storage, files.output);
    if (retried?.state !== "done") throw notDone(files.output, retried?.reason);
    await checkOutputs(storage, files, retried);
    const input = await this.openInput(storage, job.input);
    try {
      const { check, refused } = await this.checkJobInput(input);
      const counts = {
        completed: 0,
        failed: 0,
        promptTokens: this.done.counts.promptTokens + retried.counts.promptTokens,
        outputTokens: this.done.counts.outputTokens + retried.counts.outputTokens,
      };
      const lines = this.order === "input" ? this.inInputOrder(input, check) : this.asTheyCame(refused);
      const bytes = await stageOutputs(storage, counted(lines, counts), job.output, job.errors, {
        form: input.output,
      });
      if (counts.completed + counts.failed !== check.lineCount) throw this.changed();
      await this.setDone({ ...this.done, retry: { state: "merging", to: { counts, ...bytes } } });
    } finally {
      input.close();
    }
    await this.replaceOutputs();
    return this.counts;
  }

  /** Returns true when the retry's job has failed for good; `prepare` then starts over. */
  async hasFailed(): Promise<boolean> {
    try {
      return (await readJobState(this.storage, this.files.output)).ended?.state === "failed";
    } catch (error) {
      if (error instanceof BatchError && error.code === "no_job") return false; // the retry's job has not begun
      throw error;
    }
  }

  close(): void {
    this.journal.close();
  }

  /** Runs a step. A failed sync becomes an error of this run only: the job has failed only if its journal says so. */
  private async step<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const isSync = error instanceof BatchError && error.code === "sync_failed";
      if (!isSync || this.journal.ended?.state === "failed") throw error;
      const why = error.cause instanceof Error ? error.cause.message : String(error.cause);
      const message =
        `Cannot make the files of the retry of "${this.job.output}" durable: ${why}. ${RETRY_AGAIN}`;
      throw new BatchError("sync_failed", message, false, { cause: error.cause });
    }
  }

  /** Ends the merge. From here on, the new outputs are complete and durable, under their partial or final names. */
  private async replaceOutputs(): Promise<void> {
    const { storage, job: { output, errors } } = this;
    const { order, retry } = this.done;
    if (retry?.state !== "merging") return;
    try {
      await showStaged(storage, output, errors, retry.to);
    } catch (error) {
      if (error instanceof BatchError && error.code === "sync_failed") {
        const reason = `${error.message}. Its outputs are whole, but may still have the names ` +
          `"${partialPath(output)}" and "${partialPath(errors)}"`;
        await this.journal.finish({ state: "failed", reason }).catch(() => {});
        throw new BatchError("sync_failed", reason, false, { cause: error.cause });
      }
      throw error;
    }
    await checkOutputs(storage, this.job, { state: "done", ...retry.to });
    await this.setDone({ state: "done", order, ...retry.to });
    await this.removeFiles();
  }

  private async setDone(done: DoneJob): Promise<void> {
    await this.journal.finish(done);
    this.done = done;
  }

  private async removeFiles(): Promise<void> {
    const { input, output, errors } = this.files;
    try {
      for (const path of [input, errors, journalPath(output), output]) {
        await this.storage.remove(path);
        await this.storage.remove(partialPath(path));
      }
    } catch (error) {
      throw ioError(`remove the files of the retry of "${this.job.output}"`, error);
    }
  }

  /** Returns the input's check and the refused line numbers, ascending. Throws BatchError for another input. */
  private async checkJobInput(input: JobInput): Promise<{ check: InputCheck; refused: RefusedLines }> {
    const { job } = this;
    const refused = new RefusedLines();
    const check = await checkInput(input, job.input, this.limits, ({ line }) => refused.add(line));
    const other = this.journal.otherInput(identityOf(check, input));
    if (other === undefined) return { check, refused };
    const what = `"${job.input}" is not what "${job.output}" was made from: the job `;
    throw new BatchError("journal_other_job", [what, ...other, ". Give the job's own options"], false);
  }

  /** Writes the retry's input. Returns its number of lines. */
  private async writeFailedLines(revise: Revision["revise"]): Promise<number> {
    const { storage, job, files } = this;
    const input = await this.openInput(storage, job.input);
    const failed = new CustomIds(this.done.counts.failed + 1);
    try {
      const { check, refused } = await this.checkJobInput(input);
      let count = 0;
      for await (const { customId, refusedLine } of this.results(job.errors)) {
        if (refused.has(refusedLine)) continue;
        if (customId === null || failed.add(customId, ++count) !== 0) throw this.changed();
      }
      let found = 0;
      const failedLines = async function* (lines: AsyncIterable<InputLine>): AsyncGenerator<OutputLine> {
        for await (const { customId, bytes } of lines) {
          if (customId === undefined || failed.find(customId) === 0) continue;
          found += 1;
          yield { completed: true, line: revisedLine(bytes!, revise) };
        }
      };
      const lines = failedLines(this.inputLines(input, check));
      await writeOutputs(storage, lines, files.input, files.errors);
      if (found !== count) throw this.changed();
      return count;
    } finally {
      failed.free();
      input.close();
    }
  }

  /** Returns the order of outputs whose journal does not record it. */
  private async findOrder(): Promise<AnswerOrder> {
    const { storage, job } = this;
    const input = await this.openInput(storage, job.input);
    const good = new ResultReader(storage, job.output);
    try {
      const { check } = await this.checkJobInput(input);
      for await (const line of this.inputLines(input, check)) {
        if (line.customId !== undefined) await good.take(({ customId }) => customId === line.customId);
      }
      return await good.peek() === undefined ? "input" : "completed";
    } finally {
      await good.close();
      input.close();
    }
  }

  /** Yields old and new lines in the order of the input. */
  private async *inInputOrder(input: JobInput, check: InputCheck): AsyncGenerator<OutputLine> {
    const { storage, job, files } = this;
    const old = new ResultReader(storage, job.output, input.output.answers);
    const [better, again] = [files.output, files.errors].map((path) => new ResultReader(storage, path));
    const refusals = new ResultReader(storage, job.errors);
    try {
      for await (const line of this.inputLines(input, check)) {
        if (line.customId === undefined) {
          const isOther = ({ refusedLine }: ResultLine) => refusedLine !== line.number;
          while (await refusals.take(isOther) !== undefined);
          const refusal = await refusals.take(() => true);
          if (refusal === undefined) throw this.changed();
          yield { completed: false, line: refusal.bytes };
          continue;
        }
        const isIt = ({ customId }: ResultLine) => customId === line.customId;
        const good = await old.take(isIt) ?? await better.take(isIt);
        const found = good ?? await again.take(isIt);
        if (found === undefined) throw this.changed();
        yield { completed: good !== undefined, line: found.bytes };
      }
      for (const reader of [old, better, again]) if (await reader.peek() !== undefined) throw this.changed();
    } finally {
      for (const reader of [old, better, again, refusals]) await reader.close();
    }
  }

  /** Yields the old lines, then the retry's lines, which were completed later. */
  private async *asTheyCame(refused: RefusedLines): AsyncGenerator<OutputLine> {
    const { job, files } = this;
    for (const path of [job.output, files.output]) {
      for await (const { bytes } of this.results(path)) yield { completed: true, line: bytes };
    }
    for await (const { bytes, refusedLine } of this.results(job.errors)) {
      if (refused.has(refusedLine)) yield { completed: false, line: bytes };
    }
    for await (const { bytes } of this.results(files.errors)) yield { completed: false, line: bytes };
  }

  /** Yields the lines of the input. Lines that the check refused have no customId. */
  private async *inputLines(input: JobInput, check: InputCheck): AsyncGenerator<InputLine> {
    const { job, limits } = this;
    try {
      for await (const line of input.lines(limits.maxLineBytes)) {
        const { request } = await parseChecked(line, check, job.input, limits);
        yield { number: line.number, bytes: line.bytes, customId: request?.customId };
      }
    } catch (error) {
      throw ioError(`read "${job.input}"`, error);
    }
  }

  private async *results(path: string): AsyncGenerator<ResultLine> {
    try {
      yield* readResults(this.storage, path);
    } catch (error) {
      throw ioError(`read "${path}"`, error);
    }
  }

  private changed(): BatchError {
    const { output, errors } = this.job;
    const message =
      `"${output}" and "${errors}" do not have each line of the input exactly once: they were changed ` +
      "since the job ended. Nothing was replaced";
    return new BatchError("output_missing", message, false);
  }
}

async function* counted(lines: AsyncIterable<OutputLine>, counts: Counts): AsyncGenerator<OutputLine> {
  for await (const line of lines) {
    counts[line.completed ? "completed" : "failed"] += 1;
    yield line;
  }
}

async function isThere(storage: Storage, path: string): Promise<boolean> {
  try {
    return await storage.stat(path) !== undefined;
  } catch (error) {
    throw ioError(`look at "${path}"`, error);
  }
}

function noJournal(output: string): BatchError {
  const message =
    `There is no job with the output "${output}": it has no journal "${journalPath(output)}", and only ` +
    "that says which lines failed. Put the failed lines into an input of their own and run that as a new job";
  return new BatchError("no_job", message, false);
}

function notDone(output: string, reason: string | undefined): BatchError {
  if (reason !== undefined) {
    return new BatchError("job_failed", `The job of "${output}" has failed for good: ${reason}`, false);
  }
  const message = `The job of "${output}" is not done yet: run it to its end first`;
  return new BatchError("job_unfinished", message, true);
}
