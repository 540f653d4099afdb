import type { Asked } from "./asked.ts";
import { BatchError, ioError } from "./errors.ts";
import { type RawLine, readLines } from "./lines.ts";
import type { OutputLine } from "./outputs.ts";
import { readResults, type ResultLine } from "./results.ts";
import type { Storage, StorageFile } from "./storage.ts";

/** What a job reads its lines from, and how its answers are written. A JSONL file is one; a table of rows is another. */
export interface JobInput {
  /** Bytes of the file. */
  readonly size: number;
  /** All lines, from the first: the same at each call, as long as the file is the same. */
  lines(maxLineBytes: number): AsyncGenerator<RawLine>;
  /** SHA-256 of the file, hex, after a whole pass of `lines`; only where an input is more than its lines. */
  digest?(): Promise<string>;
  /** What each line asks besides what is in the file; only where the lines are made from rows. */
  readonly asked?: Asked;
  readonly output: OutputForm;
  close(): void;
}

/** How the answers of a job are written. */
export interface OutputForm {
  /** The bytes of the output file; `records` has those of failed lines too. */
  render(records: AsyncIterable<OutputLine>): AsyncIterable<Uint8Array>;
  /** The good answers in an output file that `render` wrote, as lines that it takes again. */
  answers(storage: Storage, path: string): AsyncGenerator<ResultLine>;
}

/** Opens the input of a job. Throws BatchError. */
export type OpenInput = (storage: Storage, path: string) => Promise<JobInput>;

const LF = new Uint8Array([0x0a]);

/** Good answers only, a line each. */
export const jsonLines: OutputForm = {
  render: async function* (records) {
    for await (const { completed, line } of records) {
      if (!completed) continue;
      yield line;
      yield LF;
    }
  },
  answers: readResults,
};

/** A file of requests, one JSON object a line. */
export const openJsonLines: OpenInput = async (storage, path) => {
  const file = await openFile(storage, path);
  try {
    return {
      size: await file.size(),
      lines: (maxLineBytes) => readLines(file, maxLineBytes),
      output: jsonLines,
      close: () => file.close(),
    };
  } catch (error) {
    file.close();
    throw ioError(`read "${path}"`, error);
  }
};

/** Only the first lines of an input. */
export function firstLines(open: OpenInput, limit: number): OpenInput {
  return async (storage, path) => {
    const input = await open(storage, path);
    return {
      size: input.size,
      output: input.output,
      close: () => input.close(),
      lines: async function* (maxLineBytes) {
        for await (const line of input.lines(maxLineBytes)) {
          if (line.index >= limit) return;
          yield line;
        }
      },
    };
  };
}

/** Throws BatchError where there is nothing to read, or what can be read only once. */
export async function openFile(storage: Storage, path: string): Promise<StorageFile> {
  try {
    // A pipe can be read only once, and a job needs its input again after a crash.
    const found = await storage.stat(path);
    if (found?.isFile) return await storage.open(path, "read");
    const why = found === undefined ? "there is no such file" : "it is not a regular file";
    throw new BatchError("input_unreadable", `Cannot read "${path}": ${why}`, false);
  } catch (error) {
    throw ioError(`read "${path}"`, error);
  }
}
