import { ioError, syncError } from "./errors.ts";
import { jsonLines, type OutputForm, type OutputLine } from "./output_form.ts";
import type { Storage, StorageFile } from "./journal/storage.ts";

const BUFFER_BYTES = 256 * 1024;
const LF = new Uint8Array([0x0a]);

export interface OutputBytes {
  readonly outputBytes: number;
  readonly errorBytes: number;
}

export interface WriteOptions {
  /** Form of the output file; by default good answers, one per line. */
  readonly form?: OutputForm;
  readonly signal?: AbortSignal;
}

/**
 * Writes the output and error files in the order of `lines`; each file appears completely or not at all. The output
 * appears last, after the error file. Without failed lines, no error file is written.
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

/** Writes both files, complete and durable, under their partial names, for `showStaged`. */
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
 * Renames staged outputs to their final names and replaces the old files. Skips a file that already has its final name,
 * so calling it again finishes the work after a crash.
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
      // If no line failed, a file with the error file's partial name is a leftover.
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

/** Writes all lines durably under the partial names. Returns the size of each file in bytes. */
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

/** Yields all lines, and writes the failed ones to the error file. */
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

/** Returns the name of a file while it is incomplete. */
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

  /** Copies the bytes into the buffer, so the caller may reuse them. */
  async add(bytes: Uint8Array): Promise<void> {
    if (this.file === undefined) await this.open();
    if (this.used + bytes.length > this.buffer.length) await this.flush();
    if (bytes.length > this.buffer.length) this.buffer = new Uint8Array(bytes.length);
    this.buffer.set(bytes, this.used);
    this.used += bytes.length;
  }

  /** Makes the file's content durable. Returns its size in bytes. */
  async end(): Promise<number> {
    if (this.file === undefined) return 0;
    await this.flush();
    await this.sync(() => this.file!.sync());
    this.file.close();
    this.file = undefined;
    return this.written;
  }

  /** Renames the file to its final name, durably. */
  async show(): Promise<void> {
    await this.attempt(() => this.storage.rename(this.partial, this.path));
    this.leftover = false;
    await this.sync(() => this.storage.syncFolderOf(this.path));
  }

  /** Makes the partial name durable and keeps the file under it. */
  async keep(): Promise<void> {
    if (!this.leftover) return;
    await this.sync(() => this.storage.syncFolderOf(this.partial));
    this.leftover = false;
  }

  /** Removes a partial file that was not renamed. Ignores errors of the disk. */
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
