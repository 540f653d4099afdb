import { join } from "@std/path";
import { errorCode, ioError } from "./errors.ts";
import { diskStorage } from "./storage.ts";
import { ServiceError } from "./types.ts";

/*
 * The folder of a server's files and batches:
 *
 *   lock              held while a server uses the folder
 *   compy.sqlite      what is known of files and batches (with SQLite's -wal and -shm)
 *   uploads/          what is being received; emptied at the start
 *   files/FILE        the content of an uploaded file
 *   jobs/BATCH/       a batch's journal, output.jsonl and errors.jsonl
 */
const FOLDERS = ["uploads", "files", "jobs"];

export class DataFolder {
  private constructor(readonly path: string, private readonly lock: Deno.FsFile) {}

  /** Creates the folder if it is missing and locks it. Throws if another server uses it. */
  static async open(path: string): Promise<DataFolder> {
    for (const folder of FOLDERS) await Deno.mkdir(join(path, folder), { recursive: true, mode: 0o700 });
    const lock = await Deno.open(join(path, "lock"), { read: true, write: true, create: true });
    if (!await lock.tryLock(true)) {
      lock.close();
      throw new Error(
        `Cannot use "${path}" for files and batches: another server uses it; give another folder with --data, or ` +
          "--data none",
      );
    }
    return new DataFolder(path, lock);
  }

  get database(): string {
    return join(this.path, "compy.sqlite");
  }

  /** The place of a path that is relative to the folder. */
  at(path: string): string {
    return join(this.path, path);
  }

  job(batchId: string): { folder: string; output: string; errors: string } {
    const folder = `jobs/${batchId}`;
    return { folder, output: `${folder}/output.jsonl`, errors: `${folder}/errors.jsonl` };
  }

  async remove(path: string): Promise<void> {
    await Deno.remove(this.at(path), { recursive: true }).catch((error) => {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    });
  }

  /** Removes what a crash left behind: all but `keep`, paths of files and of folders whose content is kept. */
  async clean(keep: ReadonlySet<string>): Promise<void> {
    for (const folder of FOLDERS) {
      for await (const { name, isDirectory } of Deno.readDir(this.at(folder))) {
        const path = `${folder}/${name}`;
        if (keep.has(path)) continue;
        if (!isDirectory) {
          await this.remove(path);
          continue;
        }
        const inside = (await Array.fromAsync(Deno.readDir(this.at(path)))).map((entry) =>
          `${path}/${entry.name}`
        );
        const kept = inside.filter((entry) => keep.has(entry));
        if (kept.length === 0) await this.remove(path);
        else for (const entry of inside) if (!kept.includes(entry)) await this.remove(entry);
      }
    }
  }

  beginUpload(): Promise<Upload> {
    return Upload.begin(this, crypto.randomUUID());
  }

  close(): void {
    this.lock.close();
  }
}

/** A file that is being received: on the disk as it comes, and nowhere once it is discarded. */
export class Upload {
  bytes = 0;
  #open = true;

  private constructor(
    private readonly folder: DataFolder,
    private readonly path: string,
    private readonly file: Deno.FsFile,
  ) {}

  static async begin(folder: DataFolder, name: string): Promise<Upload> {
    const path = `uploads/${name}`;
    const file = await Deno.open(folder.at(path), { write: true, createNew: true, mode: 0o600 });
    return new Upload(folder, path, file);
  }

  /** Throws ServiceError storage_full. */
  async write(bytes: Uint8Array): Promise<void> {
    try {
      for (let done = 0; done < bytes.length;) done += await this.file.write(bytes.subarray(done));
    } catch (error) {
      throw refusal(error);
    }
    this.bytes += bytes.length;
  }

  /** Makes the content durable at `path` of the folder. */
  async keep(path: string): Promise<void> {
    try {
      await this.file.sync();
      this.#close();
      await Deno.rename(this.folder.at(this.path), this.folder.at(path));
      await diskStorage.syncFolderOf(this.folder.at(path));
    } catch (error) {
      throw refusal(error);
    }
  }

  /** Leaves nothing behind; nothing happens when the content was kept. */
  async discard(): Promise<void> {
    this.#close();
    await this.folder.remove(this.path);
  }

  #close(): void {
    if (this.#open) this.file.close();
    this.#open = false;
  }
}

const DISK_FULL = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

function refusal(cause: unknown): Error {
  if (!DISK_FULL.has(errorCode(cause))) return ioError("keep the file", cause);
  return new ServiceError("storage_full", "There is no room on the server's disk for this file", { cause });
}
