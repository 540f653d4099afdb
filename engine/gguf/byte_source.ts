/** Sources of a model's bytes: a file, a Blob in a browser, or anything else with random access. */

/** Random access to bytes. */
export interface ByteSource extends AsyncDisposable {
  /** Total bytes. */
  readonly size: number;
  /** Fills `into` from byte `offset` on. Returns the bytes read, fewer than asked only at the end. */
  read(offset: number, into: Uint8Array<ArrayBuffer>): Promise<number>;
  /** Like `read`, but synchronous, for sources that can. */
  readSync?(offset: number, into: Uint8Array<ArrayBuffer>): number;
}

/** Opens one of a model's files by its path or other name. */
export type OpenSource = (path: string) => Promise<ByteSource>;

/** Thrown where a source ends before the requested bytes. */
export class SourceEnded extends Error {
  override name = "SourceEnded";
}

/** Returns `length` bytes from byte `offset` on. Throws SourceEnded where the source has fewer. */
export async function readBytes(
  source: ByteSource,
  offset: number,
  length: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length);
  const got = await source.read(offset, bytes);
  if (got < length) throw new SourceEnded(`there are ${offset + got} bytes; ${offset + length} are needed`);
  return bytes;
}

/** Opens a file. Throws the system's errors, and TypeError for a folder, a pipe and other special files. */
export function openFile(path: string): Promise<ByteSource> {
  return attempt(() => new FileSource(path));
}

/** Runs `use` with all of a model's files open, by their paths. */
export async function withSources<T>(
  { paths, open }: { readonly paths: readonly string[]; readonly open: OpenSource },
  use: (sources: ReadonlyMap<string, ByteSource>) => Promise<T>,
): Promise<T> {
  const sources = new Map<string, ByteSource>();
  try {
    for (const path of paths) sources.set(path, await open(path));
    return await use(sources);
  } finally {
    for (const source of sources.values()) await source[Symbol.asyncDispose]();
  }
}

/** Returns `compute`'s result or exception as a promise. */
function attempt<T>(compute: () => T): Promise<T> {
  return new Promise((resolve) => resolve(compute()));
}

/** Reads synchronously, one system call each: loading a model has nothing else to do meanwhile. */
class FileSource implements ByteSource {
  readonly size: number;
  // node:fs is not imported, because browsers load this file too and have no such module.
  readonly #fs = process.getBuiltinModule("node:fs");
  readonly #file: number;

  constructor(path: string) {
    this.#file = this.#fs.openSync(path, "r");
    const stat = this.#fs.fstatSync(this.#file);
    this.size = stat.size;
    if (stat.isFile()) return;
    this.#fs.closeSync(this.#file);
    throw new TypeError(`${path} is not a regular file`);
  }

  readSync(offset: number, into: Uint8Array<ArrayBuffer>): number {
    let done = 0;
    while (done < into.length) {
      const count = this.#fs.readSync(this.#file, into, done, into.length - done, offset + done);
      if (count === 0) break;
      done += count;
    }
    return done;
  }

  read(offset: number, into: Uint8Array<ArrayBuffer>): Promise<number> {
    return attempt(() => this.readSync(offset, into));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return attempt(() => this.#fs.closeSync(this.#file));
  }
}

/** Reads a Blob, or a File that a user chose in a browser. */
export function blobSource(blob: Blob): ByteSource {
  return {
    size: blob.size,
    async read(offset, into) {
      const bytes = new Uint8Array(await blob.slice(offset, offset + into.length).arrayBuffer());
      into.set(bytes);
      return bytes.length;
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** Reads bytes in memory. */
export function memorySource(bytes: Uint8Array): ByteSource {
  const readSync = (offset: number, into: Uint8Array) => {
    const given = bytes.subarray(offset, offset + into.length);
    into.set(given);
    return given.length;
  };
  return {
    size: bytes.length,
    readSync,
    read: (offset, into) => Promise.resolve(readSync(offset, into)),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
