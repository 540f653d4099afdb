import { BatchError, ioError } from "./errors.ts";
import { readLines } from "./lines.ts";
import type { Storage } from "./storage.ts";

/** A line of an output or error file. */
export interface ResultLine {
  /** Without line end. */
  readonly bytes: Uint8Array;
  readonly customId: string | null;
  /** The number of the input line, where the line says that the check refused it. */
  readonly refusedLine: number | undefined;
}

/** More than the longest answer. */
const MAX_RESULT_BYTES = 2 ** 28;

/** The lines of an output or error file; none where there is no such file. Throws BatchError where it is damaged. */
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
    const message = `"${path}", line ${number}, is not what a batch wrote (${why}); it was changed since`;
    throw new BatchError("output_missing", message, false, { cause });
  }
}

/** The lines of such a file, taken one after the other when they are the wanted one. */
export class ResultReader {
  private readonly lines;
  private next: ResultLine | undefined;

  constructor(storage: Storage, private readonly path: string, read = readResults) {
    this.lines = read(storage, path);
  }

  /** The next line, undefined at the end; `take` takes it. */
  async peek(): Promise<ResultLine | undefined> {
    try {
      return this.next ??= (await this.lines.next()).value ?? undefined;
    } catch (error) {
      throw ioError(`read "${this.path}"`, error);
    }
  }

  /** Takes the next line if it is as wanted. */
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
