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

/**
 * Opens a file, in Deno or Node. Throws the runtime's own errors, and TypeError for a folder, a pipe and
 * other special files.
 */
export function openFile(path: string): Promise<ByteSource> {
  return attempt(() =>
    new FileSource(path, typeof Deno === "undefined" ? openInNode(path) : openInDeno(path))
  );
}

/** Returns `compute`'s result or exception as a promise. */
function attempt<T>(compute: () => T): Promise<T> {
  return new Promise((resolve) => resolve(compute()));
}

/** An open file. */
interface Handle {
  readonly size: number;
  readonly isFile: boolean;
  /** Returns the bytes read; 0 at the end. */
  readAt(offset: number, into: Uint8Array<ArrayBuffer>): number;
  close(): void;
}

/** Reads synchronously, one system call each: loading a model has nothing else to do meanwhile. */
class FileSource implements ByteSource {
  readonly size: number;

  constructor(path: string, private readonly handle: Handle) {
    this.size = handle.size;
    if (handle.isFile) return;
    handle.close();
    throw new TypeError(`${path} is not a regular file`);
  }

  readSync(offset: number, into: Uint8Array<ArrayBuffer>): number {
    let done = 0;
    while (done < into.length) {
      const count = this.handle.readAt(offset + done, into.subarray(done));
      if (count === 0) break;
      done += count;
    }
    return done;
  }

  read(offset: number, into: Uint8Array<ArrayBuffer>): Promise<number> {
    return attempt(() => this.readSync(offset, into));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return attempt(() => this.handle.close());
  }
}

function openInDeno(path: string): Handle {
  const file = Deno.openSync(path, { read: true });
  const { size, isFile } = file.statSync();
  return {
    size,
    isFile,
    readAt(offset, into) {
      file.seekSync(offset, Deno.SeekMode.Start);
      return file.readSync(into) ?? 0;
    },
    close: () => file.close(),
  };
}

function openInNode(path: string): Handle {
  // Not imported: this file also runs in browsers, which lack the module.
  const fs = globalThis.process.getBuiltinModule("node:fs");
  const file = fs.openSync(path, "r");
  const stat = fs.fstatSync(file);
  return {
    size: stat.size,
    isFile: stat.isFile(),
    readAt: (offset, into) => fs.readSync(file, into, 0, into.length, offset),
    close: () => fs.closeSync(file),
  };
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
