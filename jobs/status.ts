import { BatchError, ioError } from "./errors.ts";
import {
  type Counts,
  decodeFrame,
  decodeRecord,
  FRAME_BYTES,
  frameLength,
  type JobEnd,
  MAX_PAYLOAD,
  recordsOffset,
  type StoredHeader,
} from "./journal/journal_format.ts";
import { readHead } from "./journal/journal.ts";
import { PagedReader } from "./journal/paged_reader.ts";
import { journalPath } from "./run/runner.ts";
import { type Storage, type StorageFile } from "./journal/storage.ts";

/** The state of a job as its journal records it; readable while another process writes the journal. */
export interface JobState {
  readonly identity: StoredHeader;
  /** How the job ended; undefined while it can resume. */
  readonly ended: JobEnd | undefined;
  /** Whether a process holds the journal. */
  readonly running: boolean;
}

/** Returns the state of the job with that output. Throws BatchError when there is none. */
export async function readJobState(storage: Storage, output: string): Promise<JobState> {
  return await reading(storage, output, async (file) => {
    const path = journalPath(output);
    const head = await readHead(path, file);
    if (head === undefined) throw noJob(output);
    // The lock is held only briefly, and released with the file.
    return { identity: head.header, ended: head.ended?.end, running: !await file.tryLock() };
  });
}

/** Counts the answers of a job that has not ended. Reads the whole journal. */
export async function countAnswers(
  storage: Storage,
  output: string,
  header: StoredHeader,
): Promise<Counts> {
  return await reading(storage, output, async (file) => {
    const counts = { completed: 0, failed: 0, promptTokens: 0, outputTokens: 0 };
    const { lineCount } = header;
    const seen = new Uint8Array(lineCount);
    const reader = new PagedReader(file, await file.size());
    for (let offset = recordsOffset(header);;) {
      const head = await reader.read(offset, FRAME_BYTES);
      if (head.length < FRAME_BYTES || frameLength(head) > MAX_PAYLOAD) return counts;
      const length = FRAME_BYTES + frameLength(head);
      const payload = decodeFrame(offset, await reader.read(offset, length));
      const record = payload && decodeRecord(payload);
      if (record === undefined || record.index >= lineCount || seen[record.index]) return counts;
      seen[record.index] = 1;
      counts[record.completed ? "completed" : "failed"] += 1;
      counts.promptTokens += record.promptTokens;
      counts.outputTokens += record.outputTokens;
      offset += length;
    }
  });
}

async function reading<T>(
  storage: Storage,
  output: string,
  work: (file: StorageFile) => Promise<T>,
): Promise<T> {
  const path = journalPath(output);
  let file: StorageFile | undefined;
  try {
    if (await storage.stat(path) === undefined) throw noJob(output);
    file = await storage.open(path, "read");
    return await work(file);
  } catch (error) {
    throw ioError(`read the journal "${path}"`, error);
  } finally {
    file?.close();
  }
}

function noJob(output: string): BatchError {
  const message = `There is no job with the output "${output}": it has no journal "${journalPath(output)}"`;
  return new BatchError("no_job", message, false);
}
