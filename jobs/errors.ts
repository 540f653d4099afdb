import { WordedError, type Wording } from "../engine/api/errors.ts";

/**
 * Why a batch job was refused or stopped.
 *
 * ```ts
 * import { type BatchErrorCode } from "compy";
 *
 * const resumable: BatchErrorCode[] = ["disk_full", "no_descriptors", "queue_unavailable"];
 * console.log("Run the batch again when the cause has passed:", resumable);
 * ```
 */
export type BatchErrorCode =
  /** The input cannot be read, or has no lines. */
  | "input_unreadable"
  /** The input was changed while the job ran. */
  | "input_changed"
  | "input_too_large"
  /** The input has bad lines, and the job was told to refuse them. */
  | "lines_refused"
  | "no_job"
  | "job_unfinished"
  /** Two files of the job are the same. */
  | "same_file"
  | "output_exists"
  | "output_unwritable"
  /** An output of a job that is done is missing or was changed. */
  | "output_missing"
  /** Another process runs the job. */
  | "journal_busy"
  /** The file is not a journal of this version. */
  | "journal_foreign"
  | "journal_damaged"
  /** The journal belongs to a job with a different input, model or question. */
  | "journal_other_job"
  /** The job has failed permanently. */
  | "job_failed"
  | "disk_full"
  /** The process cannot open more files. */
  | "no_descriptors"
  | "io_error"
  /** The disk may have lost data. */
  | "sync_failed"
  /** The model does not answer, or has changed. */
  | "engine_unavailable"
  /** The NATS server cannot be reached. */
  | "queue_unavailable";

/**
 * An error that refuses or stops a batch job. When `resumable`, the journal holds the answers so far and the same
 * command resumes the job. Otherwise a person must decide something first; the message says what.
 */
export class BatchError extends WordedError {
  override name = "BatchError";
  /** The error's message without advice, for a server that retries by itself. */
  readonly what: string;
  constructor(
    readonly code: BatchErrorCode,
    message: string | Wording,
    readonly resumable: boolean,
    { what, ...options }: ErrorOptions & { what?: string } = {},
  ) {
    super(message, options);
    this.what = what ?? this.message;
  }
}

const DISK_FULL = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);
/** System codes for the limit of open files, of the process or the system. */
const NO_DESCRIPTORS = new Set(["EMFILE", "ENFILE"]);

/** Returns a resumable BatchError for a failed file operation. For a failed sync use syncError. */
export function ioError(doing: string, cause: unknown): BatchError {
  if (cause instanceof BatchError) return cause;
  const what = `Cannot ${doing}: ${cause instanceof Error ? cause.message : String(cause)}`;
  const stopped = (code: BatchErrorCode, advice = "") =>
    new BatchError(code, `${what}. The answers so far are kept${advice}`, true, { cause, what });
  if (DISK_FULL.has(errorCode(cause))) {
    return stopped("disk_full", ": free some space and run the same command again");
  }
  if (NO_DESCRIPTORS.has(errorCode(cause))) {
    return stopped(
      "no_descriptors",
      ": close other programs or raise the limit (ulimit -n), and run the same command again",
    );
  }
  return stopped("io_error");
}

/**
 * Returns the error of a failed fsync. The kernel may have dropped the dirty pages, and reports the error only once. A
 * second fsync that succeeds proves nothing, so the job fails permanently. If the folder could not be opened for the
 * sync, nothing was lost and the job can resume.
 */
export function syncError(path: string, cause: unknown): BatchError {
  if (NO_DESCRIPTORS.has(errorCode(cause))) return ioError(`make "${path}" durable`, cause);
  const message = cause instanceof Error ? cause.message : String(cause);
  return new BatchError(
    "sync_failed",
    `Cannot make "${path}" durable: ${message}. The disk may have lost data, so this job has failed for good`,
    false,
    { cause },
  );
}

/** Returns an error's system code, such as `ENOSPC`; empty when it has none. */
export function errorCode(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" ? code : "";
}
