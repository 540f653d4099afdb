import { ioError, syncError } from "./errors.ts";
import type { JournalRecord } from "./journal_format.ts";
import type { Storage, StorageFile } from "./storage.ts";

const BUFFER_BYTES = 256 * 1024;

/**
 * Writes the output and error files from the answers (in input order) so that each appears whole or not at all. The
 * output comes last: where it is, the errors are too. Without failed lines there is no error file.
 */
export async function writeOutputs(
  storage: Storage,
  records: AsyncIterable<JournalRecord>,
  output: string,
  errors: string,
  signal: AbortSignal,
): Promise<{ outputBytes: number; errorBytes: number }> {
  const outputFile = new LineFile(storage, output);
  const errorFile = new LineFile(storage, errors);
  try {
    await outputFile.open();
    for await (const record of records) {
      signal.throwIfAborted();
      const file = record.completed ? outputFile : errorFile;
      await file.add(record.line);
    }
    const outputBytes = await outputFile.end();
    const errorBytes = await errorFile.end();
    if (errorBytes > 0) await errorFile.show();
    await outputFile.show();
    return { outputBytes, errorBytes };
  } finally {
    await outputFile.drop();
    await errorFile.drop();
  }
}

/** The name a file has until it is whole. */
export function partialPath(path: string): string {
  return `${path}.partial`;
}

class LineFile {
  private readonly partial: string;
  private file: StorageFile | undefined;
  private leftover = false;
  private buffer = new Uint8Array(0);
  private used = 0;
  private written = 0;

  constructor(private readonly storage: Storage, private readonly path: string) {
    this.partial = partialPath(path);
  }

  async open(): Promise<void> {
    this.file = await this.attempt(() => this.storage.open(this.partial, "replace"));
    this.leftover = true;
    this.buffer = new Uint8Array(BUFFER_BYTES);
  }

  async add(line: Uint8Array): Promise<void> {
    if (this.file === undefined) await this.open();
    if (this.used + line.length + 1 > this.buffer.length) await this.flush();
    if (line.length + 1 > this.buffer.length) this.buffer = new Uint8Array(line.length + 1);
    this.buffer.set(line, this.used);
    this.used += line.length;
    this.buffer[this.used++] = 0x0a;
  }

  /** Makes the content durable; its size in bytes. */
  async end(): Promise<number> {
    if (this.file === undefined) return 0;
    await this.flush();
    await this.sync(() => this.file!.sync());
    this.file.close();
    this.file = undefined;
    return this.written;
  }

  /** Gives the file its name. */
  async show(): Promise<void> {
    await this.attempt(() => this.storage.rename(this.partial, this.path));
    this.leftover = false;
    await this.sync(() => this.storage.syncFolderOf(this.path));
  }

  /** Gives back the room of a file that did not come to its name, as far as the disk lets. */
  async drop(): Promise<void> {
    this.file?.close();
    if (this.leftover) await this.storage.remove(this.partial).catch(() => {});
  }

  private async flush(): Promise<void> {
    await this.attempt(() => this.file!.write(this.buffer.subarray(0, this.used), this.written));
    this.written += this.used;
    this.used = 0;
  }

  private async attempt<T>(operation: () => Promise<T>): Promise<T> {
    try {
      return await operation();
    } catch (error) {
      throw ioError(`write "${this.path}"`, error);
    }
  }

  private async sync(operation: () => Promise<void>): Promise<void> {
    try {
      await operation();
    } catch (error) {
      throw syncError(this.path, error);
    }
  }
}
