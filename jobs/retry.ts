import { askedDifference } from "./asked.ts";
import { checkInput, type InputCheck, type InputLimits, parseChecked } from "./check.ts";
import { CustomIds } from "./custom_ids.ts";
import { BatchError, ioError } from "./errors.ts";
import { Journal } from "./journal.ts";
import type { AnswerOrder, Counts, DoneJob } from "./journal_format.ts";
import { type JobInput, type OpenInput, openJsonLines } from "./input.ts";
import type { RawLine } from "./lines.ts";
import { type OutputLine, partialPath, showStaged, stageOutputs, writeOutputs } from "./outputs.ts";
import { RefusedLines } from "./refused_lines.ts";
import { readResults, type ResultLine, ResultReader } from "./results.ts";
import { AS_BEFORE, revisedLine, type Revision } from "./revision.ts";
import { checkOutputs, identityOf, type JobFiles, journalPath } from "./runner.ts";
import { readJobState } from "./status.ts";
import type { Storage } from "./storage.ts";

/*
 * The failed lines of a job that is done, answered once more. The job's journal says how far that has come, so that a
 * retry that was killed anywhere is resumed or finished, and never done twice:
 *
 *   done              what lies there of a retry is a leftover
 *   done, "running"   OUT.retry-in has the failed lines; they are answered as a job of their own, with its own journal
 *   done, "merging"   the new outputs are whole beside the old ones, and take their place
 *   done              the retry's files are removed
 *
 * Lines are matched by custom_id, and those that the check refused by their number in the input. What goes into the
 * retry's input is in the error file, and the lines of the output are copied as they are: a good answer is never touched.
 */

/** After a sync that failed in a retry. */
export const RETRY_AGAIN =
  "The answers of the job are as they were: when the disk can be trusted, run the same retry-errors command again";

/** The files of the job that answers the failed lines of a job. */
export function retryFiles({ output }: JobFiles): JobFiles {
  return {
    input: `${output}.retry-in`,
    output: `${output}.retry`,
    errors: `${output}.retry-errors`,
  };
}

interface InputLine extends Pick<RawLine, "number" | "bytes"> {
  readonly customId: string | undefined;
}

/** One retry of a job's failed lines. It holds the job's journal until it is closed. */
export class Retry {
  /** To be run as a job before `merge`; in the order of the job. */
  readonly files: JobFiles;
  /** Whether an earlier retry was stopped in its merge, and is done now. */
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
   * Takes up the job of `job.output`, which must be done; finishes the merge of an earlier retry that was stopped in it.
   * Throws BatchError where there is no such job, where it is not done, and where its files were changed.
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
        // A sync that failed may have lost what is seen here. Only what is written anew is known to be durable.
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

  /** In which the retry is to be run. */
  get order(): AnswerOrder {
    return this.done.order ?? "input";
  }

  /** Counts of the job, without those of a retry that was not merged. */
  get counts(): Readonly<Counts> {
    return this.done.counts;
  }

  /**
   * Makes the retry's input of the failed lines, where an earlier run has not done that or where its job has failed for
   * good. Whether there are any. Throws BatchError where an earlier retry has begun that asks otherwise.
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

  /** Its good answers would be asked again, if the retry began anew. */
  private begunOtherwise(difference: string): BatchError {
    const message =
      `A retry of "${this.job.output}" was stopped, which was begun with ${difference}. Give the same options, which ` +
      "ends it; what fails then can be retried with others";
    return new BatchError("job_unfinished", message, true);
  }

  /**
   * Puts what the retry answered well into the output, what it did not into the error file, and takes the retry's files
   * away. The job's new counts.
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

  /** Whether the job that answers the failed lines has failed for good. `prepare` begins anew then. */
  async hasFailed(): Promise<boolean> {
    try {
      return (await readJobState(this.storage, this.files.output)).ended?.state === "failed";
    } catch (error) {
      if (error instanceof BatchError && error.code === "no_job") return false; // it has not begun
      throw error;
    }
  }

  close(): void {
    this.journal.close();
  }

  /** A sync that fails here ends this run. The job has failed only where its journal says so. */
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

  /** Ends the merge: from here on the new outputs are whole and durable, under one name or the other. */
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

  /** Checks that it is the input of the job; the numbers of the lines that the check refuses, ascending. */
  private async checkJobInput(input: JobInput): Promise<{ check: InputCheck; refused: RefusedLines }> {
    const { job } = this;
    const refused = new RefusedLines();
    const check = await checkInput(input, job.input, this.limits, ({ line }) => refused.add(line));
    const other = this.journal.otherInput(identityOf(check, input));
    if (other === undefined) return { check, refused };
    const message =
      `"${job.input}" is not what "${job.output}" was made from: the job ${other}. Give what the job had`;
    throw new BatchError("journal_other_job", message, false);
  }

  /** Writes the input of the retry. How many lines it has. */
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

  /** The order of outputs whose journal does not say it. */
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

  /** Old and new lines of a job whose outputs are in the order of its input. */
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

  /** Old lines, then new ones: those of the retry came later. */
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

  /** The lines of the input; without customId those that the check refuses. */
  private async *inputLines(input: JobInput, check: InputCheck): AsyncGenerator<InputLine> {
    const { job, limits } = this;
    try {
      for await (const line of input.lines(limits.maxLineBytes)) {
        const { request } = parseChecked(line, check, job.input, limits);
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
