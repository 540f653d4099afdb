import * as fs from "node:fs";
import { open, rename, rm, stat } from "node:fs/promises";
import { dirname } from "@std/path";
import { thisRuntime } from "../../ffi/runtime.ts";
import { errorCode } from "../errors.ts";

/**
 * The file operations that durable batches need. Tests replace them with a simulated file system that loses, tears and
 * refuses writes. Errors carry the system's code in `code` (`ENOSPC`, `EIO`).
 */
export interface Storage {
  /**
   * Opens a file. "read" requires an existing file. "edit" reads and writes, and creates a missing file. "replace"
   * empties it first.
   */
  open(path: string, mode: "read" | "edit" | "replace"): Promise<StorageFile>;
  /**
   * Returns size and kind of the file; undefined if there is none. `version` changes when the file is written or
   * replaced.
   */
  stat(path: string): Promise<{ size: number; isFile: boolean; version: string } | undefined>;
  /** Renames a file, and replaces the file at `to`. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file. Does nothing when nothing is at `path`. */
  remove(path: string): Promise<void>;
  /** Makes created, renamed and removed names durable in the folder of `path`. */
  syncFolderOf(path: string): Promise<void>;
}

/** An open file. Operations on one file must not overlap. */
export interface StorageFile {
  /** Reads into `buffer`. Returns the number of bytes read: at least 1 unless the file ends at or before `offset`. */
  read(buffer: Uint8Array, offset: number): Promise<number>;
  /** Writes all bytes. After an error, any part of them may be in the file. */
  write(bytes: Uint8Array, offset: number): Promise<void>;
  truncate(size: number): Promise<void>;
  /** Makes the file's content and size durable (fdatasync). */
  sync(): Promise<void>;
  size(): Promise<number>;
  /**
   * Takes an exclusive lock until the file is closed or the process ends. Returns false if another process holds it.
   */
  tryLock(): Promise<boolean>;
  close(): void;
}

const { O_RDONLY, O_RDWR, O_CREAT, O_TRUNC } = fs.constants;
const FLAGS = { read: O_RDONLY, edit: O_RDWR | O_CREAT, replace: O_RDWR | O_CREAT | O_TRUNC };

/** The real file system. */
export const diskStorage: Storage = {
  async open(path, mode) {
    const file = await finished<number>((done) => fs.open(path, FLAGS[mode], done));
    return new DiskFile(file, path, mode === "read" ? "r" : "r+");
  },

  async stat(path) {
    try {
      const found = await stat(path, { bigint: true });
      const version = `${found.ino} ${found.size} ${found.mtimeNs}`;
      return { size: Number(found.size), isFile: found.isFile(), version };
    } catch (error) {
      if (errorCode(error) === "ENOENT") return undefined;
      throw error;
    }
  },

  rename,

  async remove(path) {
    await rm(path, { force: true });
  },

  async syncFolderOf(path) {
    // Windows cannot open a folder as a file, and NTFS journals names by itself.
    if (process.platform === "win32") return;
    const folder = await open(dirname(path), "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  },
};

class DiskFile implements StorageFile {
  #unlock: (() => void) | undefined;

  constructor(
    private readonly file: number,
    private readonly path: string,
    private readonly flags: "r" | "r+",
  ) {}

  read(buffer: Uint8Array, offset: number): Promise<number> {
    return finished<number>((done) => fs.read(this.file, buffer, 0, buffer.length, offset, done));
  }

  async write(bytes: Uint8Array, offset: number): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      at += await finished<number>((done) =>
        fs.write(this.file, bytes, at, bytes.length - at, offset + at, done)
      );
    }
  }

  truncate(size: number): Promise<void> {
    return finished((done) => fs.ftruncate(this.file, size, done));
  }

  sync(): Promise<void> {
    return finished((done) => fs.fdatasync(this.file, done));
  }

  async size(): Promise<number> {
    return (await finished<fs.Stats>((done) => fs.fstat(this.file, done))).size;
  }

  tryLock(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#unlock ??= thisRuntime()!.lockFile(this.path, this.flags);
      resolve(this.#unlock !== undefined);
    });
  }

  close(): void {
    this.#unlock?.();
    fs.closeSync(this.file);
  }
}

/** Starts an operation with a callback, and returns its result as a promise. */
function finished<T = void>(
  start: (done: (error: Error | null, value?: T) => void) => void,
): Promise<T> {
  return new Promise((resolve, reject) => start((error, value) => error ? reject(error) : resolve(value!)));
}

/**
 * Reads into `buffer` from `offset`. Returns the number of bytes, fewer than the buffer holds only at the end of the
 * file.
 */
export async function readFully(file: StorageFile, buffer: Uint8Array, offset: number): Promise<number> {
  let done = 0;
  while (done < buffer.length) {
    const count = await file.read(buffer.subarray(done), offset + done);
    if (count === 0) break;
    done += count;
  }
  return done;
}
