import { join } from "@std/path";

/** A file in the folder. */
export interface Listed {
  readonly name: string;
  readonly bytes: number;
  /** Last use, in milliseconds since 1970. */
  readonly usedAt: number;
}

/**
 * The file operations that the store needs. Tests replace them with a disk that fails, tears writes and fills
 * up. Failures are thrown with the system's error name in `code` (`ENOSPC`, `EMFILE`).
 */
export interface Folder {
  /** Creates the folder if it is missing, accessible to its owner only. */
  make(): Promise<void>;
  list(): Promise<Listed[]>;
  /** Returns the file's contents; undefined where its size is not `bytes`. Throws Deno.errors.NotFound. */
  read(name: string, bytes: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Writes a whole file, accessible to its owner only. */
  write(name: string, pieces: readonly Uint8Array[]): Promise<void>;
  /** Renames a file. Replaces an existing file of the new name. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file. Does nothing where it is missing. */
  remove(name: string): Promise<void>;
  /** Sets a file's last use. */
  touch(name: string, at: number): Promise<void>;
  /** Makes files and the folder's entries durable. */
  sync(names: readonly string[]): Promise<void>;
  /**
   * Takes or keeps the lock, which ends with the process or `unlock`. Returns false where another process has
   * it.
   */
  lock(): Promise<boolean>;
  unlock(): void;
}

/** The file whose lock marks the writing process. Other locks may be in the same folder. */
export const LOCK = "prompts.lock";
/** Maximum files open at once. */
const AT_ONCE = 8;

/** A folder on disk. */
export class DiskFolder implements Folder {
  #lock: Deno.FsFile | undefined;

  constructor(readonly path: string) {}

  async make(): Promise<void> {
    await Deno.mkdir(this.path, { recursive: true, mode: 0o700 });
  }

  async list(): Promise<Listed[]> {
    const names: string[] = [];
    for await (const { name, isFile } of Deno.readDir(this.path)) if (isFile) names.push(name);
    const files: Listed[] = [];
    await inTurns(names, async (name) => {
      try {
        const { size, mtime } = await Deno.stat(join(this.path, name));
        files.push({ name, bytes: size, usedAt: mtime?.getTime() ?? 0 });
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
    });
    return files;
  }

  async read(name: string, bytes: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    using file = await Deno.open(join(this.path, name), { read: true });
    if ((await file.stat()).size !== bytes) return undefined;
    const content = new Uint8Array(bytes);
    for (let done = 0; done < bytes;) {
      const count = await file.read(content.subarray(done));
      if (count === null) return undefined; // truncated meanwhile
      done += count;
    }
    return content;
  }

  async write(name: string, pieces: readonly Uint8Array[]): Promise<void> {
    const options = { write: true, create: true, truncate: true, mode: 0o600 };
    using file = await Deno.open(join(this.path, name), options);
    for (const piece of pieces) {
      for (let done = 0; done < piece.length;) done += await file.write(piece.subarray(done));
    }
  }

  async rename(from: string, to: string): Promise<void> {
    await Deno.rename(join(this.path, from), join(this.path, to));
  }

  async remove(name: string): Promise<void> {
    try {
      await Deno.remove(join(this.path, name));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }

  async touch(name: string, at: number): Promise<void> {
    await Deno.utime(join(this.path, name), new Date(at), new Date(at));
  }

  async sync(names: readonly string[]): Promise<void> {
    await inTurns(names, async (name) => {
      using file = await Deno.open(join(this.path, name), { read: true, write: true });
      await file.syncData();
    });
    if (Deno.build.os === "windows") return; // Windows cannot open a folder as a file
    using folder = await Deno.open(this.path, { read: true });
    await folder.sync();
  }

  async lock(): Promise<boolean> {
    if (this.#lock) return true;
    const lock = await Deno.open(join(this.path, LOCK), { write: true, create: true, mode: 0o600 });
    try {
      if (await lock.tryLock(true)) {
        this.#lock = lock;
        return true;
      }
    } catch (error) {
      lock.close();
      throw error;
    }
    lock.close();
    return false;
  }

  unlock(): void {
    this.#lock?.close();
    this.#lock = undefined;
  }
}

/** Runs the action for each item, a few at a time. Throws the first failure. */
async function inTurns<T>(items: readonly T[], action: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  const work = async () => {
    for (const item of rest) await action(item);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
}
