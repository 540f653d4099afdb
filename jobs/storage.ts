import { dirname } from "@std/path";

/**
 * The few file operations that durable batches are made of, so that tests can put a file system below them that loses,
 * tears and refuses. Failures are thrown with the system's name in `code` (`ENOSPC`, `EIO`).
 */
export interface Storage {
  /** "read" wants an existing file; "edit" reads and writes and makes the file when missing; "replace" empties it first. */
  open(path: string, mode: "read" | "edit" | "replace"): Promise<StorageFile>;
  /** undefined when nothing is at `path`. */
  stat(path: string): Promise<{ size: number; isFile: boolean } | undefined>;
  /** Replaces what is at `to`. */
  rename(from: string, to: string): Promise<void>;
  /** Nothing happens when nothing is at `path`. */
  remove(path: string): Promise<void>;
  /** Makes names (created, renamed, removed) in the folder of `path` durable. */
  syncFolderOf(path: string): Promise<void>;
}

/** An open file. Operations on one file must not overlap. */
export interface StorageFile {
  /** Bytes read, at least 1 unless the file ends at or before `offset`. */
  read(buffer: Uint8Array, offset: number): Promise<number>;
  /** Writes all bytes; after an error any part of them may be in the file. */
  write(bytes: Uint8Array, offset: number): Promise<void>;
  truncate(size: number): Promise<void>;
  /** Makes content and size durable (fdatasync). */
  sync(): Promise<void>;
  size(): Promise<number>;
  /** Takes the exclusive lock, which ends with the file or the process. false when another holds it. */
  tryLock(): Promise<boolean>;
  close(): void;
}

const OPEN_OPTIONS = {
  read: { read: true },
  edit: { read: true, write: true, create: true },
  replace: { read: true, write: true, create: true, truncate: true },
};

/** The real file system. */
export const diskStorage: Storage = {
  async open(path, mode) {
    return new DiskFile(await Deno.open(path, OPEN_OPTIONS[mode]));
  },

  async stat(path) {
    try {
      const { size, isFile } = await Deno.stat(path);
      return { size, isFile };
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
  },

  async rename(from, to) {
    await Deno.rename(from, to);
  },

  async remove(path) {
    try {
      await Deno.remove(path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  },

  async syncFolderOf(path) {
    // Windows cannot open a folder as a file, and NTFS journals names itself.
    if (Deno.build.os === "windows") return;
    using folder = await Deno.open(dirname(path), { read: true });
    await folder.sync();
  },
};

class DiskFile implements StorageFile {
  constructor(private readonly file: Deno.FsFile) {}

  async read(buffer: Uint8Array, offset: number): Promise<number> {
    this.file.seekSync(offset, Deno.SeekMode.Start);
    return (await this.file.read(buffer)) ?? 0;
  }

  async write(bytes: Uint8Array, offset: number): Promise<void> {
    this.file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < bytes.length;) done += await this.file.write(bytes.subarray(done));
  }

  async truncate(size: number): Promise<void> {
    await this.file.truncate(size);
  }

  async sync(): Promise<void> {
    await this.file.syncData();
  }

  async size(): Promise<number> {
    return (await this.file.stat()).size;
  }

  tryLock(): Promise<boolean> {
    return this.file.tryLock(true);
  }

  close(): void {
    this.file.close();
  }
}

/** Fills `buffer` from `offset` on; fewer bytes than it holds come back only where the file ends. */
export async function readFully(file: StorageFile, buffer: Uint8Array, offset: number): Promise<number> {
  let done = 0;
  while (done < buffer.length) {
    const count = await file.read(buffer.subarray(done), offset + done);
    if (count === 0) break;
    done += count;
  }
  return done;
}
