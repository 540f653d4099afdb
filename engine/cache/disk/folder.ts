import type { FileHandle } from "node:fs/promises";
import { join } from "@std/path";
import { thisRuntime } from "../../../ffi/runtime.ts";

/** A file in the prompt cache folder. */
export interface Listed {
  readonly name: string;
  readonly bytes: number;
  /** Time of the last use, in milliseconds since 1970. */
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
  /** Returns a file's contents; undefined if its size is not `bytes`. Throws ENOENT if it is missing. */
  read(name: string, bytes: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Writes a whole file, accessible to its owner only. */
  write(name: string, pieces: readonly Uint8Array[]): Promise<void>;
  /** Renames a file. Replaces an existing file of the new name. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file. Does nothing if it is missing. */
  remove(name: string): Promise<void>;
  /** Sets the time of a file's last use. */
  touch(name: string, at: number): Promise<void>;
  /** Makes the named files and the folder's entries durable. */
  sync(names: readonly string[]): Promise<void>;
  /**
   * Takes the folder's lock, or keeps it, until `unlock` or the end of the process. Returns false if another process
   * holds it.
   */
  lock(): Promise<boolean>;
  unlock(): void;
}

/** The file whose lock marks the writing process. Other locks may be in the same folder. */
export const LOCK = "prompts.lock";
/** Maximum files that are open at once. */
const AT_ONCE = 8;

/** A prompt cache folder on disk. */
export class DiskFolder implements Folder {
  // node:fs is not imported, because browsers load this file too and have no such module.
  readonly #fs = process.getBuiltinModule("node:fs");
  #unlock: (() => void) | undefined;

  constructor(readonly path: string) {}

  async make(): Promise<void> {
    await this.#fs.promises.mkdir(this.path, { recursive: true, mode: 0o700 });
  }

  async list(): Promise<Listed[]> {
    const entries = await this.#fs.promises.readdir(this.path, { withFileTypes: true });
    const files: Listed[] = [];
    await inTurns(entries.filter((entry) => entry.isFile()), async ({ name }) => {
      try {
        const { size, mtimeMs } = await this.#fs.promises.stat(join(this.path, name));
        files.push({ name, bytes: size, usedAt: mtimeMs });
      } catch (error) {
        if (!isMissing(error)) throw error;
      }
    });
    return files;
  }

  async read(name: string, bytes: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    await using file = await this.#open(name, "r");
    if ((await file.stat()).size !== bytes) return undefined;
    const content = new Uint8Array(bytes);
    for (let done = 0; done < bytes;) {
      const { bytesRead } = await file.read(content, done);
      if (bytesRead === 0) return undefined; // the file was truncated meanwhile
      done += bytesRead;
    }
    return content;
  }

  async write(name: string, pieces: readonly Uint8Array[]): Promise<void> {
    await using file = await this.#open(name, "w");
    for (const piece of pieces) {
      for (let done = 0; done < piece.length;) done += (await file.write(piece, done)).bytesWritten;
    }
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#fs.promises.rename(join(this.path, from), join(this.path, to));
  }

  async remove(name: string): Promise<void> {
    await this.#fs.promises.rm(join(this.path, name), { force: true });
  }

  async touch(name: string, at: number): Promise<void> {
    await this.#fs.promises.utimes(join(this.path, name), new Date(at), new Date(at));
  }

  async sync(names: readonly string[]): Promise<void> {
    await inTurns(names, async (name) => {
      await using file = await this.#open(name, "r+");
      await file.datasync();
    });
    if (process.platform === "win32") return; // Windows cannot open a folder as a file
    await using folder = await this.#open(".", "r");
    await folder.sync();
  }

  async lock(): Promise<boolean> {
    if (this.#unlock) return true;
    await (await this.#open(LOCK, "a")).close();
    this.#unlock = thisRuntime()!.lockFile(join(this.path, LOCK), "r+");
    return this.#unlock !== undefined;
  }

  unlock(): void {
    this.#unlock?.();
    this.#unlock = undefined;
  }

  async #open(name: string, flags: string): Promise<FileHandle & AsyncDisposable> {
    return await this.#fs.promises.open(join(this.path, name), flags, 0o600);
  }
}

/** Whether the error says that the file is missing. */
export function isMissing(error: unknown): boolean {
  return (error as { code?: unknown }).code === "ENOENT";
}

/** Runs the action for each item, at most AT_ONCE at a time. Throws the first failure. */
async function inTurns<T>(items: readonly T[], action: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  const work = async () => {
    for (const item of rest) await action(item);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
}
