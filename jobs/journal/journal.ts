import type { Wording } from "../../engine/api/errors.ts";
import { type Asked, askedDifference } from "../asked.ts";
import { BatchError, ioError, syncError } from "../errors.ts";
import { identityDifference } from "../model_identity.ts";
import {
  type AnswerOrder,
  type Counts,
  decodeEnd,
  decodeFrame,
  decodeHeader,
  decodeRecord,
  encodeEnd,
  encodeHead,
  encodeHeader,
  encodeRecords,
  FRAME_BYTES,
  frameLength,
  HEAD_BYTES,
  type JobEnd,
  type JobIdentity,
  type JournalRecord,
  MAX_PAYLOAD,
  recordsOffset,
  slotOffset,
  type StoredEnd,
  type StoredHeader,
} from "./journal_format.ts";
import { PagedReader } from "./paged_reader.ts";
import { readFully, type Storage, type StorageFile } from "./storage.ts";

/** A job's open and locked journal: the only record of answered lines. */
export class Journal {
  /** Counts of the records that are durable in the journal. */
  readonly counts: Counts = { completed: 0, failed: 0, promptTokens: 0, outputTokens: 0 };
  /** Number of bytes of an incomplete last record that recovery cut off. */
  cutBytes = 0;
  /** File offset of the journal's first frame. */
  private readonly start: number;
  /** File offset of the journal's next frame. */
  private end: number;
  /** File offset of each line's frame; 0 while the line has no answer. */
  private offsets = new Float64Array(0); // [lineCount]
  private waiting: { record: JournalRecord; done: PromiseWithResolvers<void> }[] = [];
  private flushing = false;
  private broken: BatchError | undefined;

  private constructor(
    private readonly storage: Storage,
    readonly path: string,
    private readonly file: StorageFile,
    private readonly stored: StoredHeader | undefined,
    /** File offset of the damaged block: the header or its copy. */
    private readonly damaged: number | undefined,
    private storedEnd: StoredEnd | undefined,
  ) {
    this.start = this.end = stored === undefined ? HEAD_BYTES : recordsOffset(stored);
  }

  /** Opens or creates the journal at `path` and locks it until `close` or the end of the process. Throws BatchError. */
  static async open(storage: Storage, path: string): Promise<Journal> {
    const reading = `open the journal "${path}"`;
    const file = await storage.open(path, "edit").catch((error) => {
      throw ioError(reading, error);
    });
    try {
      if (!await file.tryLock()) {
        throw new BatchError(
          "journal_busy",
          `Another process is running this job: it has locked "${path}"`,
          true,
        );
      }
      const head = await readHead(path, file);
      return new Journal(storage, path, file, head?.header, head?.damaged, head?.ended);
    } catch (error) {
      file.close();
      throw ioError(reading, error);
    }
  }

  /** Whether the job has a header. */
  get begun(): boolean {
    return this.stored !== undefined;
  }

  /** How the job ended; undefined while it can resume. */
  get ended(): JobEnd | undefined {
    return this.storedEnd?.end;
  }

  /** Throws BatchError when the journal belongs to another input or, if settings are given, to other settings. */
  checkIdentity({ settings, ...identity }: Omit<JobIdentity, "settings"> & Partial<JobIdentity>): void {
    const stored = this.stored;
    if (stored === undefined) return;
    const other = this.otherInput(identity);
    if (other !== undefined) {
      throw new BatchError("journal_other_job", [
        `"${this.path}" `,
        ...other,
        ". Run it as it was begun, or give another ",
        { output: undefined },
        "; to give up the old job, remove the journal",
      ], false);
    }
    const difference = settings && identityDifference(stored.settings, settings);
    if (difference === undefined) return;
    const unrecorded = Object.keys(settings!).filter((key) => !Object.hasOwn(stored.settings, key));
    const message = unrecorded.length > 0
      ? `"${this.path}" was begun by an earlier version of compy, which did not record ${
        unrecorded.join(", ")
      }: ` +
        "whether this is the same model cannot be told. Finish the job with that version"
      : `"${this.path}" was begun with ${difference}: answers of both would be mixed. Resume it as it was begun`;
    throw new BatchError("journal_other_job", [
      `${message}, give another `,
      { output: undefined },
      ", or remove the journal, and its answers with it",
    ], false);
  }

  /**
   * Returns the difference between an input and the job's, in words that follow the journal's name; undefined if they
   * are equal.
   */
  otherInput(identity: Omit<JobIdentity, "settings">): Wording | undefined {
    const { stored } = this;
    if (stored === undefined || stored.input === identity.input) return undefined;
    const asked = stored.asked && askedDifference(stored.asked, identity.asked ?? {});
    if (asked !== undefined) return ["was begun with ", ...asked, ": answers of both would be mixed"];
    const sizes = `of ${stored.lineCount} lines and ${stored.inputSize} bytes ` +
      `(got ${identity.lineCount} lines and ${identity.inputSize} bytes)`;
    if (stored.asked !== undefined || identity.asked === undefined) {
      return [`belongs to another input ${sizes}`];
    }
    const begun =
      "an earlier version of compy began it, which did not record what it asked, and had no default for ";
    return [`belongs to another input ${sizes}, or to other questions: ${begun}`, { maxTokens: undefined }];
  }

  /** The job's options per row, if the journal records them. */
  get asked(): Asked | undefined {
    return this.stored?.asked;
  }

  /** The processor that computed the first answers, if the journal records it. */
  get processor(): string | undefined {
    return this.stored?.processor;
  }

  /** Writes the header of a new job, or recovers the answers of an existing one. Throws BatchError. */
  async begin(identity: JobIdentity): Promise<void> {
    this.checkIdentity(identity);
    this.offsets = new Float64Array(identity.lineCount);
    const { stored, damaged } = this;
    if (stored === undefined) {
      await this.io("write", () => this.file.truncate(0));
      await this.io("write", () => this.file.write(encodeHead(identity), 0));
    } else {
      if (damaged !== undefined) {
        await this.io("write", () => this.file.write(encodeHeader(stored, damaged), damaged));
      }
      await this.recover();
    }
    // A killed process may have left answers only in the page cache. They count from here on, so they are synced.
    await this.sync();
    await this.storage.syncFolderOf(this.path).catch((error) => {
      throw syncError(this.path, error);
    });
  }

  has(index: number): boolean {
    return this.offsets[index] !== 0;
  }

  /** Number of leading lines that are all answered. */
  get firstAnswered(): number {
    const gap = this.offsets.indexOf(0);
    return gap < 0 ? this.offsets.length : gap;
  }

  /**
   * Resolves when the record is durable and counted. Records that arrive during a sync share the next one. A line with
   * an answer keeps that answer. After an error, nothing more is written and every call rejects.
   */
  append(record: JournalRecord): Promise<void> {
    if (this.broken !== undefined) return Promise.reject(this.broken);
    const done = Promise.withResolvers<void>();
    this.waiting.push({ record, done });
    if (!this.flushing) this.flush();
    return done.promise;
  }

  private async flush(): Promise<void> {
    this.flushing = true;
    // Waits for the other records of this turn of the event loop.
    await Promise.resolve();
    while (this.waiting.length > 0) {
      const group = this.waiting.splice(0);
      try {
        await this.write(group.map(({ record }) => record));
        for (const { done } of group) done.resolve();
      } catch (error) {
        this.broken = error as BatchError;
        for (const { done } of [...group, ...this.waiting.splice(0)]) done.reject(error);
      }
    }
    this.flushing = false;
  }

  private async write(records: JournalRecord[]): Promise<void> {
    const fresh = new Map<number, JournalRecord>();
    for (const record of records) {
      if (!this.has(record.index) && !fresh.has(record.index)) fresh.set(record.index, record);
    }
    if (fresh.size === 0) return;
    const added = [...fresh.values()];
    const { bytes, ends } = encodeRecords(this.end, added);
    await this.io("write", () => this.file.write(bytes, this.end));
    await this.sync();
    const start = this.end;
    for (const [i, record] of added.entries()) this.count(record, start + ends[i]);
  }

  /** Counts the record whose frame starts at `this.end` and ends at `end`. */
  private count(record: JournalRecord, end: number): void {
    this.offsets[record.index] = this.end;
    this.end = end;
    this.counts[record.completed ? "completed" : "failed"] += 1;
    this.counts.promptTokens += record.promptTokens;
    this.counts.outputTokens += record.outputTokens;
  }

  /** Finds the stored answers and truncates the file at the first incomplete or invalid frame. */
  private async recover(): Promise<void> {
    const size = await this.io("read", () => this.file.size());
    const reader = new PagedReader(this.file, size);
    for (;;) {
      const frame = await this.readFrame(reader, this.end);
      const record = frame && decodeRecord(frame);
      if (record === undefined || record.index >= this.offsets.length || this.has(record.index)) break;
      this.count(record, this.end + FRAME_BYTES + frame!.length);
    }
    this.cutBytes = Math.max(0, size - this.end);
    if (this.cutBytes > 0) await this.io("write", () => this.file.truncate(this.end));
  }

  /** Yields the records of the first `limit` lines, by default of all lines. Each of these lines must be answered. */
  async *records(order: AnswerOrder = "input", limit = this.offsets.length): AsyncGenerator<JournalRecord> {
    const reader = new PagedReader(this.file, this.end);
    const isInput = order === "input";
    let offset = this.start;
    for (let place = 0; isInput ? place < limit : offset < this.end; place++) {
      if (isInput) offset = this.offsets[place];
      const frame = await this.readFrame(reader, offset);
      const record = frame && decodeRecord(frame);
      if (record === undefined || this.offsets[record.index] !== offset) throw this.damagedAt(offset);
      if (record.index < limit) yield record;
      offset += FRAME_BYTES + frame!.length;
    }
  }

  private damagedAt(offset: number): BatchError {
    return new BatchError(
      "journal_damaged",
      `"${this.path}" at byte ${offset}: the answer that was written there is damaged; the same command answers ` +
        "this line and those recorded after it again",
      true,
    );
  }

  /** Returns the payload of the frame at `offset`, or undefined when the frame is incomplete or damaged. */
  private async readFrame(reader: PagedReader, offset: number): Promise<Uint8Array | undefined> {
    const head = await this.io("read", () => reader.read(offset, FRAME_BYTES));
    if (head.length < FRAME_BYTES || frameLength(head) > MAX_PAYLOAD) return undefined;
    const length = FRAME_BYTES + frameLength(head);
    return decodeFrame(offset, await this.io("read", () => reader.read(offset, length)));
  }

  /**
   * Records durably how the job ended. The previous end stays valid until then. A finished job's journal drops its
   * answers, because the output has them.
   */
  async finish(end: JobEnd): Promise<void> {
    const { sequence, slot } = this.storedEnd ?? { sequence: 0, slot: 1 };
    const stored: StoredEnd = { end, sequence: sequence + 1, slot: slot === 0 ? 1 : 0 };
    this.storedEnd = stored;
    await this.io("write", () => this.file.write(encodeEnd(stored), slotOffset(stored.slot)));
    await this.sync();
    // The copy only protects against damage, and the truncation only saves disk space, so their failure is ignored.
    const copy = encodeEnd({ ...stored, slot, isCopy: true });
    await this.file.write(copy, slotOffset(slot)).catch(() => {});
    if (end.state === "done") await this.file.truncate(this.start).catch(() => {});
  }

  close(): void {
    this.file.close();
  }

  private async sync(): Promise<void> {
    try {
      await this.file.sync();
    } catch (error) {
      throw syncError(this.path, error);
    }
  }

  private async io<T>(doing: "read" | "write", operation: () => Promise<T>): Promise<T> {
    try {
      return await operation();
    } catch (error) {
      throw ioError(`${doing} the journal "${this.path}"`, error);
    }
  }
}

/** Returns the blocks before a journal's first answer; undefined while the job has no header. Throws BatchError. */
export async function readHead(
  path: string,
  file: StorageFile,
): Promise<{ header: StoredHeader; damaged?: number; ended: StoredEnd | undefined } | undefined> {
  const blocks = new Uint8Array(HEAD_BYTES);
  const size = await file.size();
  const head = blocks.subarray(0, await readFully(file, blocks, 0));
  const found = decodeHeader(path, head, size);
  return found && { ...found, ended: decodeEnd(head) };
}
