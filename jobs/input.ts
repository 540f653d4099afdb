import type { Asked } from "./asked.ts";
import type { Storage, StorageFile } from "./journal/storage.ts";
import { jsonLines, type OutputForm } from "./output_form.ts";
import { BatchError, ioError } from "./errors.ts";
import { type RawLine, readLines } from "./lines.ts";

/** Source of a job's lines, and the form of its answers: a JSONL file, or a table of rows. */
export interface JobInput {
  /** Size of the input file in bytes. */
  readonly size: number;
  /** Yields all lines from the first. Every call yields the same lines while the file is unchanged. */
  lines(maxLineBytes: number): AsyncGenerator<RawLine>;
  /**
   * Returns the file's hex SHA-256 after a full pass of `lines`. Only for files with more content than the lines, such
   * as tables.
   */
  digest?(): Promise<string>;
  /** Options that the job adds to each line made from a table row; the file does not contain them. */
  readonly asked?: Asked;
  readonly output: OutputForm;
  close(): void;
}

/** Opens the input of a job. Throws BatchError. */
export type OpenInput = (storage: Storage, path: string) => Promise<JobInput>;

/** Opens a file of requests, one JSON object per line. Throws BatchError. */
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

/** Returns an opener whose input has only the first `limit` lines. */
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

/** Opens a regular file for reading. Throws BatchError when it is missing or is not a regular file. */
export async function openFile(storage: Storage, path: string): Promise<StorageFile> {
  try {
    // A pipe can be read only once, but a job reads its input again after a crash.
    const found = await storage.stat(path);
    if (found?.isFile) return await storage.open(path, "read");
    const why = found === undefined ? "there is no such file" : "it is not a regular file";
    throw new BatchError("input_unreadable", `Cannot read "${path}": ${why}`, false);
  } catch (error) {
    throw ioError(`read "${path}"`, error);
  }
}
