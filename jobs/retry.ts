import { checkInput, DEFAULT_LIMITS, parseChecked } from "./check.ts";
import { BatchError } from "./errors.ts";
import { Journal } from "./journal.ts";
import type { Counts, JournalRecord } from "./journal_format.ts";
import { readLines } from "./lines.ts";
import { partialPath, writeOutputs } from "./outputs.ts";
import { journalPath, openInput } from "./runner.ts";
import { readJobState } from "./status.ts";
import type { Storage, StorageFile } from "./storage.ts";

export interface JobFiles {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
}

/** More than the longest answer. */
const MAX_RESULT_BYTES = 2 ** 28;
const NEVER = new AbortController().signal;
const NO_TOKENS = { promptTokens: 0, outputTokens: 0 };

/** The files of the job that answers a job's failed lines once more. */
export function retryFiles({ output }: JobFiles): JobFiles {
  return {
    input: `${output}.retry-in`,
    output: `${output}.retry`,
    errors: `${output}.retry-errors`,
  };
}

/**
 * Writes the lines of a job that is done and that have no good answer into the retry's input; lines that the check
 * refuses would be refused again, and stay. An earlier retry that was stopped keeps its input. Whether there are any.
 */
export async function prepareRetry(storage: Storage, job: JobFiles): Promise<boolean> {
  const retry = retryFiles(job);
  if (await storage.stat(retry.input) !== undefined) return true;
  let count = 0;
  const failed = async function* (): AsyncGenerator<JournalRecord> {
    for await (const line of walk(storage, job)) {
      if (line.raw === undefined || line.answer) continue;
      yield { index: count++, completed: true, ...NO_TOKENS, line: line.raw };
    }
  };
  await writeOutputs(storage, failed(), retry.input, retry.errors, NEVER);
  if (count === 0) await storage.remove(retry.input);
  return count > 0;
}

/** Puts what the retry answered in the place of the errors, and takes the retry's files away. The job's new counts. */
export async function mergeRetry(storage: Storage, job: JobFiles): Promise<Counts> {
  const retry = retryFiles(job);
  const { ended } = await readJobState(storage, job.output);
  const { ended: retried } = await readJobState(storage, retry.output);
  if (ended?.state !== "done" || retried?.state !== "done") throw unfinished(retry.output);
  const counts: Counts = {
    completed: 0,
    failed: 0,
    promptTokens: ended.counts.promptTokens + retried.counts.promptTokens,
    outputTokens: ended.counts.outputTokens + retried.counts.outputTokens,
  };
  const good = await Results.open(storage, retry.output);
  const bad = await Results.open(storage, retry.errors);
  const merged = async function* (): AsyncGenerator<JournalRecord> {
    for await (const { raw, customId, answer, error, index } of walk(storage, job)) {
      const better = raw && (await good.take(customId));
      const again = raw && (await bad.take(customId));
      const line = answer ?? better ?? again ?? error;
      if (line === undefined) throw damaged(job.output, index);
      const completed = (answer ?? better) !== undefined;
      counts[completed ? "completed" : "failed"] += 1;
      yield { index, completed, ...NO_TOKENS, line };
    }
  };
  const journal = await Journal.open(storage, journalPath(job.output));
  try {
    const bytes = await writeOutputs(storage, merged(), job.output, job.errors, NEVER);
    if (bytes.errorBytes === 0) await storage.remove(job.errors);
    await journal.finish({ state: "done", counts, ...bytes });
  } finally {
    journal.close();
    good.close();
    bad.close();
  }
  for (const path of [retry.input, retry.errors, journalPath(retry.output), retry.output]) {
    await storage.remove(path);
    await storage.remove(partialPath(path));
  }
  return counts;
}

interface WalkedLine {
  readonly index: number;
  readonly customId: string | null;
  /** The line of the input, undefined when the check refuses it. */
  readonly raw: Uint8Array | undefined;
  /** Its line in the output, or else in the error file; neither where an earlier merge was cut short. */
  readonly answer: Uint8Array | undefined;
  readonly error: Uint8Array | undefined;
}

/** The lines of a job with what became of them: input, output and errors have one order. */
async function* walk(storage: Storage, job: JobFiles): AsyncGenerator<WalkedLine> {
  const { identity, ended } = await readJobState(storage, job.output);
  if (ended?.state !== "done") throw unfinished(job.output);
  const input = await openInput(storage, job.input);
  const answers = await Results.open(storage, job.output);
  const errors = await Results.open(storage, job.errors);
  try {
    const check = await checkInput(input, job.input, DEFAULT_LIMITS, () => {});
    if (check.identity !== identity.input) {
      const message = `"${job.input}" is not the input that "${job.output}" was made from`;
      throw new BatchError("journal_other_job", message, false);
    }
    for await (const line of readLines(input, DEFAULT_LIMITS.maxLineBytes)) {
      const { request } = parseChecked(line, check, job.input, DEFAULT_LIMITS);
      const customId = request?.customId ?? null;
      const answer = request && await answers.take(customId);
      const error = request ? await errors.take(customId) : await errors.takeRefusal();
      yield { index: line.index, customId, raw: request && line.bytes?.slice(), answer, error };
    }
  } finally {
    input.close();
    answers.close();
    errors.close();
  }
}

/** The lines of an output or error file, taken one after the other. */
class Results {
  private next: { line: Uint8Array; customId: string | null; refused: boolean } | undefined;
  private readonly lines;

  private constructor(private readonly file: StorageFile | undefined) {
    this.lines = file && readLines(file, MAX_RESULT_BYTES);
  }

  static async open(storage: Storage, path: string): Promise<Results> {
    const there = await storage.stat(path) !== undefined;
    return new Results(there ? await storage.open(path, "read") : undefined);
  }

  /** The next line, when it is that of the request. */
  async take(customId: string | null): Promise<Uint8Array | undefined> {
    const next = await this.peek();
    return next !== undefined && !next.refused && next.customId === customId ? this.shift() : undefined;
  }

  /** The next line, when it says that a line was refused by the check. */
  async takeRefusal(): Promise<Uint8Array | undefined> {
    return (await this.peek())?.refused ? this.shift() : undefined;
  }

  close(): void {
    this.file?.close();
  }

  private async peek() {
    if (this.next !== undefined || this.lines === undefined) return this.next;
    const { value } = await this.lines.next();
    if (value?.bytes === undefined) return undefined;
    const line = value.bytes.slice();
    const { custom_id, response } = JSON.parse(new TextDecoder().decode(line));
    // Only the check names the line.
    const refused = typeof response?.body?.error?.line === "number";
    return this.next = { line, customId: custom_id, refused };
  }

  private shift(): Uint8Array {
    const { line } = this.next!;
    this.next = undefined;
    return line;
  }
}

function unfinished(output: string): BatchError {
  return new BatchError(
    "job_unfinished",
    `The job of "${output}" is not done yet; run it to its end first`,
    true,
  );
}

function damaged(output: string, index: number): BatchError {
  const message = `"${output}" and its errors do not have the answer of input line ${
    index + 1
  }; they were changed`;
  return new BatchError("output_missing", message, false);
}
