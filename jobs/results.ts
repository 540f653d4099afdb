import { BatchError, ioError } from "./errors.ts";
import { readLines } from "./lines.ts";
import type { Storage } from "./journal/storage.ts";

/** A line of an output or error file. */
export interface ResultLine {
  /** The line without its end. */
  readonly bytes: Uint8Array;
  readonly customId: string | null;
  /** Number of the input line, if the check refused it. */
  readonly refusedLine: number | undefined;
}

/** Maximum bytes of a result line; no answer is longer. */
const MAX_RESULT_BYTES = 2 ** 28;

/** Yields the lines of an output or error file; none if the file is missing. Throws BatchError for a damaged file. */
export async function* readResults(storage: Storage, path: string): AsyncGenerator<ResultLine> {
  if (await storage.stat(path) === undefined) return;
  const file = await storage.open(path, "read");
  try {
    for await (const { bytes, number } of readLines(file, MAX_RESULT_BYTES)) {
      yield parseResult(bytes, path, number);
    }
  } finally {
    file.close();
  }
}

function parseResult(bytes: Uint8Array | undefined, path: string, number: number): ResultLine {
  try {
    if (bytes === undefined) throw new Error("it is too long");
    const { custom_id, response } = JSON.parse(new TextDecoder().decode(bytes));
    const line = response?.body?.error?.line;
    return {
      bytes: bytes.slice(),
      customId: typeof custom_id === "string" ? custom_id : null,
      refusedLine: Number.isSafeInteger(line) ? line : undefined,
    };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const message =
      `"${path}", line ${number}, was not written by a batch in this form (${why}); it has been changed`;
    throw new BatchError("output_missing", message, false, { cause });
  }
}

/** Reads the lines of an output or error file one at a time, each when the caller wants it. */
export class ResultReader {
  private readonly lines;
  private next: ResultLine | undefined;

  constructor(storage: Storage, private readonly path: string, read = readResults) {
    this.lines = read(storage, path);
  }

  /** Returns the next line without taking it, or undefined at the end. */
  async peek(): Promise<ResultLine | undefined> {
    try {
      return this.next ??= (await this.lines.next()).value ?? undefined;
    } catch (error) {
      throw ioError(`read "${this.path}"`, error);
    }
  }

  /** Takes and returns the next line if `isWanted` accepts it, else returns undefined. */
  async take(isWanted: (line: ResultLine) => boolean): Promise<ResultLine | undefined> {
    const line = await this.peek();
    if (line === undefined || !isWanted(line)) return undefined;
    this.next = undefined;
    return line;
  }

  async close(): Promise<void> {
    await this.lines.return(undefined);
  }
}
