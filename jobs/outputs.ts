import { ioError, syncError } from "./errors.ts";
import { jsonLines, type OutputForm } from "./input.ts";
import type { JournalRecord } from "./journal_format.ts";
import type { Storage, StorageFile } from "./storage.ts";

const BUFFER_BYTES = 256 * 1024;
const LF = new Uint8Array([0x0a]);

/** A line of one of the two files. */
export type OutputLine = Pick<JournalRecord, "completed" | "line">;

export interface OutputBytes {
  readonly outputBytes: number;
  readonly errorBytes: number;
}

export interface WriteOptions {
  /** Of the output file; by default the good answers, a line each. */
  readonly form?: OutputForm;
  readonly signal?: AbortSignal;
}

/**
 * Writes the output and error files, in the order in which the lines come, so that each appears whole or not at all. The
 * output comes last: where it is, the errors are too. Without failed lines there is no error file.
 */
export async function writeOutputs(
  storage: Storage,
  lines: AsyncIterable<OutputLine>,
  output: string,
  errors: string,
  options: WriteOptions = {},
): Promise<OutputBytes> {
  const [outputFile, errorFile] = [new PartialFile(storage, output), new PartialFile(storage, errors)];
  try {
    const bytes = await writeLines(lines, outputFile, errorFile, options);
    if (bytes.errorBytes > 0) await errorFile.show();
    await outputFile.show();
    return bytes;
  } finally {
    await outputFile.drop();
    await errorFile.drop();
  }
}

/** Writes both files under their partial names, whole and durable, for `showStaged`. */
export async function stageOutputs(
  storage: Storage,
  lines: AsyncIterable<OutputLine>,
  output: string,
  errors: string,
  options: WriteOptions = {},
): Promise<OutputBytes> {
  const [outputFile, errorFile] = [new PartialFile(storage, output), new PartialFile(storage, errors)];
  try {
    const bytes = await writeLines(lines, outputFile, errorFile, options);
    await outputFile.keep();
    await errorFile.keep();
    return bytes;
  } finally {
    await outputFile.drop();
    await errorFile.drop();
  }
}

/**
 * Gives staged outputs their names, in the place of what had them; nothing happens to one that has its name already, so
 * that a crash between the two is made good by calling it again.
 */
export async function showStaged(
  storage: Storage,
  output: string,
  errors: string,
  { outputBytes, errorBytes }: OutputBytes,
): Promise<void> {
  for (const [path, bytes] of [[errors, errorBytes], [output, outputBytes]] as const) {
    const doing = `write "${path}"`;
    try {
      const staged = await storage.stat(partialPath(path));
      // What the error file's partial name has is a leftover when there are no errors.
      if (path === errors && bytes === 0) {
        await storage.remove(errors);
        if (staged !== undefined) await storage.remove(partialPath(errors));
      } else if (staged !== undefined) {
        await storage.rename(partialPath(path), path);
      }
    } catch (error) {
      throw ioError(doing, error);
    }
    await storage.syncFolderOf(path).catch((error) => {
      throw syncError(path, error);
    });
  }
}

/** Writes the lines durably under the partial names. */
async function writeLines(
  lines: AsyncIterable<OutputLine>,
  outputFile: PartialFile,
  errorFile: PartialFile,
  { form = jsonLines, signal }: WriteOptions,
): Promise<OutputBytes> {
  await outputFile.open();
  for await (const bytes of form.render(errorsKept(lines, errorFile))) {
    signal?.throwIfAborted();
    await outputFile.add(bytes);
  }
  return { outputBytes: await outputFile.end(), errorBytes: await errorFile.end() };
}

/** All lines as they come; those that failed go to the error file on their way. */
async function* errorsKept(
  lines: AsyncIterable<OutputLine>,
  errorFile: PartialFile,
): AsyncGenerator<OutputLine> {
  for await (const line of lines) {
    if (!line.completed) {
      await errorFile.add(line.line);
      await errorFile.add(LF);
    }
    yield line;
  }
}

/** The name a file has until it is whole. */
export function partialPath(path: string): string {
  return `${path}.partial`;
}

class PartialFile {
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

  /** Keeps a copy. */
  async add(bytes: Uint8Array): Promise<void> {
    if (this.file === undefined) await this.open();
    if (this.used + bytes.length > this.buffer.length) await this.flush();
    if (bytes.length > this.buffer.length) this.buffer = new Uint8Array(bytes.length);
    this.buffer.set(bytes, this.used);
    this.used += bytes.length;
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

  /** Makes the partial name durable, and leaves the file there. */
  async keep(): Promise<void> {
    if (!this.leftover) return;
    await this.sync(() => this.storage.syncFolderOf(this.partial));
    this.leftover = false;
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
