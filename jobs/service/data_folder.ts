import { join } from "@std/path";
import { WordedError } from "../../engine/api/errors.ts";
import { errorCode, ioError } from "../errors.ts";
import { diskStorage } from "../journal/storage.ts";
import { ServiceError } from "../types.ts";

/*
 * Layout of a server's data folder:
 *
 *   lock              locked while a server uses the folder; holds its process id
 *   compy.sqlite      records of files and batches (with SQLite's -wal and -shm files)
 *   uploads/          uploads in progress; emptied at the start
 *   files/FILE        the content of an uploaded file
 *   jobs/BATCH/       a batch's journal, output.jsonl and errors.jsonl
 *   responses/        stored answers of /v1/responses (ResponseStore)
 *
 * Only the server's user may read them, whatever the rights of the data folder are.
 */
const FOLDERS = ["uploads", "files", "jobs"];
const DATABASE = "compy.sqlite";
const PRIVATE_FOLDERS = [...FOLDERS, "responses"];
const PRIVATE_FILES = ["lock", DATABASE, `${DATABASE}-wal`, `${DATABASE}-shm`];

/** Maximum uploads at once, and maximum downloads, of all senders and of one: each holds a file descriptor. */
const MAX_TRANSFERS = 16;
const MAX_OF_SENDER = 12;
/** When all places are taken, a new upload may cut one that is slower than this after SAFE_MS. */
const SLOW_BYTES_PER_SECOND = 8 * 2 ** 10;
const SAFE_MS = 2000;

interface Transfer {
  /** Whose it is: a key's name or an address. */
  readonly sender: string;
}

/** Returns the transfers that hold the sender's places, or all places, if all of these are taken. */
function holders<T extends Transfer>(transfers: ReadonlySet<T>, sender: string): T[] {
  const own = [...transfers].filter((transfer) => transfer.sender === sender);
  if (own.length >= MAX_OF_SENDER) return own;
  return transfers.size >= MAX_TRANSFERS ? [...transfers] : [];
}

export class DataFolder {
  readonly #uploads = new Set<Upload>();
  /** Bytes of all stored files at the last count; undefined when that count is out of date. */
  #stored: number | undefined;
  readonly #downloads = new Set<Transfer>();

  private constructor(readonly path: string, private readonly lock: Deno.FsFile) {}

  /** Creates the folder if it is missing and locks it. Throws if another server uses it. */
  static async open(path: string): Promise<DataFolder> {
    for (const folder of FOLDERS) await Deno.mkdir(join(path, folder), { recursive: true, mode: 0o700 });
    const lock = await Deno.open(join(path, "lock"), PRIVATE);
    if (!await lock.tryLock(true)) {
      const pid = /^\d+$/m.exec(await new Response(lock.readable).text().catch(() => ""))?.[0];
      const user = `another server uses it${pid ? ` (process ${pid})` : ""}`;
      throw new WordedError([
        `Cannot use "${path}" for files and batches: ${user}; stop that server, give another folder with `,
        { data: undefined },
        ", or serve without files and batches: ",
        { data: null },
      ]);
    }
    // SQLite gives its other files the rights of the database.
    (await Deno.open(join(path, DATABASE), PRIVATE)).close();
    await makePrivate(path);
    await nameHolder(lock).catch(() => {}); // fails on a full disk, but the server must still start
    return new DataFolder(path, lock);
  }

  get database(): string {
    return join(this.path, DATABASE);
  }

  /** Returns the full path of a path relative to the folder. */
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

  /** Removes leftovers of a crash: everything but `keep`, which lists files and folders with all their content. */
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

  /**
   * Starts an upload. All stored files (`stored()` bytes) plus all uploads in progress may take at most `quota` bytes.
   * Throws ServiceError too_many_transfers when all places, or those of the sender, are taken and no upload there is slow.
   */
  async beginUpload(sender: string, quota: number, stored: () => number): Promise<Upload> {
    const others = holders(this.#uploads, sender);
    if (others.length > 0) {
      const now = performance.now();
      const slowest = others.reduce((one, other) => one.rate(now) <= other.rate(now) ? one : other);
      if (slowest.rate(now) >= SLOW_BYTES_PER_SECOND) throw tooMany("uploaded");
      slowest.abandon();
    }
    const ended = () => {
      this.#uploads.delete(upload);
      this.#stored = undefined;
    };
    const upload: Upload = new Upload(
      sender,
      this,
      crypto.randomUUID(),
      () => this.#checkQuota(quota, stored),
      ended,
    );
    this.#uploads.add(upload);
    this.#stored = undefined;
    try {
      await upload.begin();
      return upload;
    } catch (error) {
      ended();
      throw error;
    }
  }

  /**
   * Throws ServiceError quota_exceeded when files and uploads exceed the quota. Recounts the files before it throws.
   */
  #checkQuota(quota: number, stored: () => number): void {
    let claimed = 0;
    for (const upload of this.#uploads) claimed += upload.claimed;
    if (claimed + (this.#stored ??= stored()) <= quota) return;
    if (claimed + (this.#stored = stored()) > quota) throw overQuota(quota);
  }

  /** Returns the content of a file. Throws ServiceError too_many_transfers. */
  async openContent(sender: string, path: string): Promise<ReadableStream<Uint8Array>> {
    const end = this.beginDownload(sender);
    try {
      const file = await openFile(this.at(path), { read: true });
      return file.readable.pipeThrough(new TransformStream({ flush: end, cancel: end }));
    } catch (error) {
      end();
      throw error;
    }
  }

  /** Counts a download until the returned function is called. Throws ServiceError too_many_transfers. */
  beginDownload(sender: string): () => void {
    if (holders(this.#downloads, sender).length > 0) throw tooMany("fetched");
    const download = { sender };
    this.#downloads.add(download);
    return () => void this.#downloads.delete(download);
  }

  close(): void {
    this.lock.close();
  }
}

const PRIVATE = { read: true, write: true, create: true, mode: 0o600 };

/** Removes other users' rights to files that an earlier version, a restore or a person has created. */
async function makePrivate(path: string): Promise<void> {
  if (Deno.build.os === "windows") return;
  const modes = [
    ...PRIVATE_FOLDERS.map((name) => [name, 0o700]),
    ...PRIVATE_FILES.map((name) => [name, 0o600]),
  ];
  for (const [name, mode] of modes as [string, number][]) {
    // The file may be missing. If it belongs to another user, that user decides about its rights.
    await Deno.chmod(join(path, name), mode).catch(() => {});
  }
}

/** Writes this process's id into the lock file. A killed server leaves its id there. */
async function nameHolder(lock: Deno.FsFile): Promise<void> {
  await lock.truncate();
  await lock.write(new TextEncoder().encode(`${Deno.pid}\n`));
}

/** A file that is being received. The file is written to disk while it arrives; `discard` removes it. */
export class Upload implements Transfer {
  bytes = 0;
  /** Received bytes, plus those being written now. */
  claimed = 0;
  readonly #path: string;
  readonly #began = performance.now();
  readonly #abandoned = new AbortController();
  #file: Deno.FsFile | undefined;

  constructor(
    readonly sender: string,
    private readonly folder: DataFolder,
    name: string,
    private readonly checkQuota: () => void,
    private readonly ended: () => void,
  ) {
    this.#path = `uploads/${name}`;
  }

  /** Aborts when another upload takes this upload's place. */
  get signal(): AbortSignal {
    return this.#abandoned.signal;
  }

  async begin(): Promise<void> {
    this.#file = await openFile(this.folder.at(this.#path), { write: true, createNew: true, mode: 0o600 });
  }

  /** Bytes per second so far; Infinity during the first SAFE_MS. */
  rate(now: number): number {
    const ms = now - this.#began;
    return ms < SAFE_MS ? Infinity : this.bytes / ms * 1000;
  }

  /** Cuts this upload so that another can take its place. */
  abandon(): void {
    this.ended();
    const message =
      "The upload was slow and was stopped, because another upload needed its place; send the file again later";
    this.#abandoned.abort(new ServiceError("upload_too_slow", message));
  }

  /** Throws ServiceError storage_full or quota_exceeded. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#abandoned.signal.throwIfAborted();
    this.claimed += bytes.length;
    this.checkQuota();
    try {
      for (let done = 0; done < bytes.length;) done += await this.#file!.write(bytes.subarray(done));
    } catch (error) {
      throw refusal(error);
    }
    this.bytes = this.claimed;
  }

  /** Makes the content durable and moves it to `path` in the folder. Throws BatchError or ServiceError. */
  async keep(path: string): Promise<void> {
    try {
      await this.#file!.sync();
      this.#close();
      await Deno.rename(this.folder.at(this.#path), this.folder.at(path));
      await diskStorage.syncFolderOf(this.folder.at(path));
    } catch (error) {
      throw refusal(error);
    }
  }

  /** Removes the partial file. Does nothing to a file that was kept. */
  async discard(): Promise<void> {
    this.#close();
    await this.folder.remove(this.#path);
    this.ended();
  }

  #close(): void {
    this.#file?.close();
    this.#file = undefined;
  }
}

const DISK_FULL = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);
const NO_DESCRIPTORS = new Set(["EMFILE", "ENFILE"]);

async function openFile(path: string, options: Deno.OpenOptions): Promise<Deno.FsFile> {
  try {
    return await Deno.open(path, options);
  } catch (error) {
    throw noDescriptors(error) ?? error;
  }
}

function noDescriptors(cause: unknown): ServiceError | undefined {
  if (!NO_DESCRIPTORS.has(errorCode(cause))) return undefined;
  const message = "The server has too many files open; send the request again later";
  return new ServiceError("too_many_transfers", message, { cause });
}

function tooMany(what: string): ServiceError {
  return new ServiceError(
    "too_many_transfers",
    `At most ${MAX_TRANSFERS} files, and ${MAX_OF_SENDER} of one sender, can be ${what} at once; send the request again later`,
  );
}

/** The message must not reveal how much other owners have stored. */
function overQuota(quota: number): ServiceError {
  return new ServiceError(
    "quota_exceeded",
    [
      `There is no room for this file: all files together must be at most ${quota} bytes (`,
      { maxStorageBytes: undefined },
      "). Delete some: DELETE /v1/files/{id}",
    ],
  );
}

function refusal(cause: unknown): Error {
  if (!DISK_FULL.has(errorCode(cause))) return noDescriptors(cause) ?? ioError("keep the file", cause);
  return new ServiceError("storage_full", "There is no room on the server's disk for this file", { cause });
}
