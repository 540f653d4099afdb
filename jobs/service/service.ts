import { MOST_IMAGE_BYTES } from "../../engine/mod.ts";
import { BatchQueue } from "./batch_queue.ts";
import type { QueueOptions } from "./queue_options.ts";
import { newId } from "./live_batch.ts";
import type { InputLimits } from "../check.ts";
import { DataFolder, type Upload } from "./data_folder.ts";
import { ClockWatch, steadyClock } from "./clock.ts";
import { sleep } from "../run/dispatch.ts";
import { diskStorage, type Storage } from "../journal/storage.ts";
import { ResponseStore } from "./response_store.ts";
import { readAnswers } from "./line_answers.ts";
import { type BatchPage, BatchStore } from "./store.ts";
import {
  type BatchRecord,
  type BatchSpec,
  type BatchView,
  type EndedStatus,
  type FilePurpose,
  type FileRecord,
  hasEnded,
  type LineAnswer,
  type Listed,
  type Page,
  ServiceError,
  type UploadPurpose,
} from "../types.ts";

export interface ServiceOptions {
  /** Path of the data folder, which is created if missing. */
  readonly path: string;
  /** The data folder, if the caller has already locked it. The service closes it. */
  readonly folder?: DataFolder;
  readonly execute: QueueOptions["execute"];
  readonly settings: QueueOptions["settings"];
  readonly processor?: QueueOptions["processor"];
  readonly ready?: QueueOptions["ready"];
  readonly lanes?: QueueOptions["lanes"];
  /** Number of lines in progress. */
  readonly parallel: number;
  readonly report: (error: unknown) => void;
  /** Maximum bytes of all files when another is uploaded; unlimited by default. Batch outputs are always kept. */
  readonly storageBytes?: number;
  /** Maximum bytes of all stored responses; 0 stores none. */
  readonly responseBytes?: number;
  readonly lineLimits: InputLimits;
  readonly pauseMs?: number;
  /** File operations for batches in the folder; by default those of the file system. */
  readonly storage?: Storage;
  /** Milliseconds between checks for expired files and batches. */
  readonly sweepMs?: number;
  /** Clock in Unix seconds. */
  readonly now?: () => number;
  /** Clock in Unix seconds that cannot be set; by default `now`, if given. */
  readonly steady?: () => number;
}

export interface ServiceFigures {
  /** Bytes of all files of all owners. */
  readonly fileBytes: number;
  /** Maximum bytes of all files; Infinity without a limit. */
  readonly fileLimitBytes: number;
  /** Batches that have not ended. */
  readonly unfinished: number;
  /** Batches that have ended since the process started. */
  readonly ended: Readonly<Record<EndedStatus, number>>;
}

const PAUSE_MS = 10_000;
const SWEEP_MS = 30_000;
const WATCH_MS = 1000;

/** The files, batches and responses of a server. Accepted work survives the process; the next process resumes it. */
export class BatchService {
  readonly #store: BatchStore;
  readonly #queue: BatchQueue;
  readonly #sweeper: ReturnType<typeof setInterval>;
  readonly #closing = new AbortController();
  readonly #clock: ClockWatch;

  private constructor(
    private readonly folder: DataFolder,
    store: BatchStore,
    readonly responses: ResponseStore,
    private readonly now: () => number,
    steady: () => number,
    private readonly options: ServiceOptions,
  ) {
    this.#store = store;
    this.#clock = new ClockWatch(now, steady);
    this.#queue = new BatchQueue({
      pauseMs: PAUSE_MS,
      storage: diskStorage,
      ...options,
      execute: (line) => {
        return options.execute({ ...line, readUpload: (id) => this.readImage(line.owner ?? "", id) });
      },
      limits: options.lineLimits,
      store,
      folder,
      now,
    });
    const sweep = () => this.#sweep().catch(options.report);
    this.#sweeper = setInterval(sweep, options.sweepMs ?? SWEEP_MS);
    sweep();
  }

  /** Opens the folder and resumes its unfinished batches. Throws if another process uses the folder. */
  static async open(options: ServiceOptions): Promise<BatchService> {
    const { folder = await DataFolder.open(options.path) } = options;
    let store: BatchStore | undefined;
    try {
      store = new BatchStore(folder.database);
      const jobs = store.unfinished().map(({ id }) => folder.job(id).folder);
      await folder.clean(new Set([...store.allFiles().map(({ path }) => path), ...jobs]));
      const steadyMs = steadyClock();
      const steady = options.steady ?? options.now ?? (() => steadyMs() / 1000);
      const now = options.now ?? (() => Math.floor(Date.now() / 1000));
      const responses = await ResponseStore.open(folder.at("responses"), {
        maxBytes: options.responseBytes,
        report: options.report,
        now: () => 1000 * steady(),
      });
      return new BatchService(folder, store, responses, now, steady, options);
    } catch (error) {
      store?.close();
      folder.close();
      throw error;
    }
  }

  /** Takes no new lines. Resolves when the lines in progress are done and everything is closed. */
  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    this.#closing.abort();
    await this.#queue.stop();
    this.#store.close();
    this.folder.close();
  }

  /**
   * Starts an upload of the sender (a key's name or an address). Throws ServiceError too_many_transfers when all
   * places, or those of the sender, are taken.
   */
  beginUpload(sender: string): Promise<Upload> {
    const quota = this.options.storageBytes ?? Infinity;
    return this.folder.beginUpload(sender, quota, () => this.#store.storedBytes());
  }

  /** Turns a finished upload into a file. */
  async addFile(
    owner: string,
    upload: Upload,
    { filename, keepSeconds, purpose = "batch" }: {
      filename: string;
      keepSeconds: number | null;
      purpose?: UploadPurpose;
    },
  ): Promise<FileRecord> {
    const createdAt = this.now();
    const id = newId("file-");
    const path = `files/${id}`;
    const file: FileRecord = {
      id,
      owner,
      bytes: upload.bytes,
      createdAt,
      expiresAt: keepSeconds === null ? null : createdAt + keepSeconds,
      filename,
      purpose,
      path,
    };
    await upload.keep(path);
    try {
      this.#store.addFile(file);
    } catch (error) {
      await this.folder.remove(path).catch(() => {});
      throw error;
    }
    return file;
  }

  file(owner: string, id: string): FileRecord {
    return this.#store.file(owner, id);
  }

  files(owner: string, page: Page & { purpose?: FilePurpose; newestFirst: boolean }): Listed<FileRecord> {
    return this.#store.files(owner, page);
  }

  /** Returns the content of a file. Throws ServiceError file_not_found or too_many_transfers. */
  async openContent(owner: string, id: string, sender: string): Promise<ReadableStream<Uint8Array>> {
    try {
      return await this.folder.openContent(sender, this.#store.file(owner, id).path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
      throw new ServiceError("file_not_found", `File ${id} is being deleted`); // see #remove
    }
  }

  /** Returns the bytes of an image that the owner uploaded, or the reason why it cannot be read. */
  async readImage(owner: string, id: string): Promise<Uint8Array<ArrayBuffer> | string> {
    try {
      const { bytes, path } = this.#store.file(owner, id);
      if (bytes > MOST_IMAGE_BYTES) return `it must have at most ${MOST_IMAGE_BYTES} bytes (got ${bytes})`;
      return await Deno.readFile(this.folder.at(path));
    } catch (error) {
      if (!(error instanceof ServiceError || error instanceof Deno.errors.NotFound)) throw error;
      return `there is no file ${JSON.stringify(id.slice(0, 64))}`;
    }
  }

  /** Deletes a file. Throws ServiceError file_not_found, or file_in_use while a batch needs it. */
  async deleteFile(owner: string, id: string): Promise<void> {
    const file = this.#store.file(owner, id);
    if (this.#store.isInput(id)) {
      throw new ServiceError("file_in_use", `File ${id} is the input of a batch that has not ended`);
    }
    await this.#remove(file);
  }

  /** Creates a batch. `prefix`: beginning of its id. `total`: the number of lines, if known. */
  createBatch(owner: string, spec: BatchSpec, { prefix = "batch_", total = 0 } = {}): BatchRecord {
    const input = this.#store.file(owner, spec.inputFileId);
    if (input.purpose !== "batch") {
      const message = `File ${input.id} must have purpose "batch" (got "${input.purpose}")`;
      throw new ServiceError("file_wrong_purpose", message);
    }
    const createdAt = this.now();
    const batch: BatchRecord = {
      ...spec,
      id: newId(prefix),
      owner,
      status: "validating",
      problems: [],
      outputFileId: null,
      errorFileId: null,
      createdAt,
      expiresAt: createdAt + spec.windowSeconds,
      inProgressAt: null,
      finalizingAt: null,
      completedAt: null,
      failedAt: null,
      expiredAt: null,
      cancellingAt: null,
      cancelledAt: null,
      ending: null,
      settings: null,
      counts: {
        total,
        completed: 0,
        failed: 0,
        promptTokens: 0,
        cachedTokens: 0,
        outputTokens: 0,
        reasoningTokens: 0,
      },
    };
    this.#store.addBatch(batch);
    this.#queue.wake();
    return batch;
  }

  batch(owner: string, id: string): BatchRecord {
    return this.#store.batch(owner, id);
  }

  batches(owner: string, page: BatchPage): Listed<BatchRecord> {
    return this.#store.batches(owner, page);
  }

  /**
   * Returns the answers of an ended batch, which count as a download until `end` is called. Throws ServiceError, for
   * example batch_has_not_ended.
   */
  answers(
    owner: string,
    id: string,
    sender: string,
  ): { answers: AsyncGenerator<LineAnswer>; end: () => void } {
    const batch = this.#endedBatch(owner, id);
    const ids = [batch.outputFileId, batch.errorFileId].filter((file) => file !== null);
    const paths = ids.map((file) => this.folder.at(this.#store.file(owner, file).path));
    const end = this.folder.beginDownload(sender);
    return { answers: readAnswers(this.options.storage ?? diskStorage, paths), end };
  }

  /** Deletes an ended batch and its files. Throws ServiceError, for example batch_has_not_ended. */
  async deleteBatch(owner: string, id: string): Promise<void> {
    const paths = this.#store.removeBatch(this.#endedBatch(owner, id));
    for (const path of [...paths, this.folder.job(id).folder]) await this.folder.remove(path);
  }

  #endedBatch(owner: string, id: string): BatchRecord {
    const batch = this.#store.batch(owner, id);
    if (hasEnded(batch)) return batch;
    throw new ServiceError(
      "batch_has_not_ended",
      `Batch ${id} has not ended; wait for its end, or cancel it`,
    );
  }

  /** Cancels a batch: its unanswered lines get no answer. Throws ServiceError batch_has_ended. */
  cancelBatch(owner: string, id: string): BatchRecord {
    const batch = this.#store.batch(owner, id);
    if (hasEnded(batch)) {
      throw new ServiceError("batch_has_ended", `Batch ${id} is ${batch.status}: there is nothing to cancel`);
    }
    if (batch.ending === "cancel") return batch;
    const change = { status: "cancelling", ending: "cancel", cancellingAt: this.now() } as const;
    const changed = this.#store.change(batch, change);
    this.#queue.end(id, "cancel");
    return changed;
  }

  /** Yields the batch now and after every change, until it has ended or the service closes. */
  async *watch(owner: string, id: string, signal: AbortSignal): AsyncGenerator<BatchView> {
    for (let last = ""; !this.#closing.signal.aborted;) {
      const view = this.#view(this.#store.batch(owner, id));
      const text = JSON.stringify(view);
      if (text !== last) yield view;
      if (hasEnded(view.batch)) return;
      last = text;
      await sleep(WATCH_MS, AbortSignal.any([signal, this.#closing.signal]));
      signal.throwIfAborted();
    }
  }

  #view(batch: BatchRecord): BatchView {
    const view = this.#queue.view(batch.id);
    return {
      batch,
      promptRate: view?.promptRate ?? null,
      outputRate: view?.outputRate ?? null,
      remaining: view?.remaining ?? null,
    };
  }

  /** Returns figures for monitoring. */
  figures(): ServiceFigures {
    return {
      fileBytes: this.#store.storedBytes(),
      fileLimitBytes: this.options.storageBytes ?? Infinity,
      unfinished: this.#store.unfinished().length,
      ended: this.#queue.ended,
    };
  }

  async #sweep(): Promise<void> {
    this.#clock.follow((shift) => this.#store.shiftTimes(shift));
    const now = this.now();
    this.#queue.wake(); // a model for which a batch waits may be available now
    for (const batch of this.#store.unfinished()) {
      if (batch.ending !== null || batch.status === "finalizing" || batch.expiresAt > now) continue;
      this.#store.change(batch, { ending: "expire" });
      this.#queue.end(batch.id, "expire");
    }
    for (const file of this.#store.expiredFiles(now)) {
      if (!this.#store.isInput(file.id)) await this.#remove(file);
    }
    await this.responses.dropOld();
  }

  /**
   * Removes a file and its record. The record goes first: after a crash, the next start removes the file. On a disk too
   * full even to delete the record, the file goes first and makes room.
   */
  async #remove(file: FileRecord): Promise<void> {
    try {
      this.#store.removeFile(file.id);
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === "storage_full")) throw error;
      await this.folder.remove(file.path);
      this.#store.removeFile(file.id);
    }
    await this.folder.remove(file.path);
  }
}
