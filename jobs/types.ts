import { WordedError, type Wording } from "../engine/api/errors.ts";
import type { ModelIdentity } from "./model_identity.ts";

/** Types shared by the batch service and its callers. Times are Unix seconds. */

/** Purposes of uploads in OpenAI's names: "batch" for batch inputs, the others for images. */
export const UPLOAD_PURPOSES = ["batch", "vision", "user_data"] as const;
export type UploadPurpose = typeof UPLOAD_PURPOSES[number];
export type FilePurpose = UploadPurpose | "batch_output";

export interface FileRecord {
  readonly id: string;
  /** Owner of the file; other owners cannot find it. */
  readonly owner: string;
  readonly bytes: number;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly filename: string;
  readonly purpose: FilePurpose;
  /** Path of the file's content, relative to the data folder. */
  readonly path: string;
}

/** The states in which a batch can end. */
const ENDED_STATUSES = ["completed", "failed", "expired", "cancelled"] as const;
export type EndedStatus = typeof ENDED_STATUSES[number];
export type BatchStatus = EndedStatus | "validating" | "in_progress" | "finalizing" | "cancelling";

/** A reason why a batch failed: a bad line of its file or, without `line`, a problem of the whole batch. */
export interface BatchProblem {
  readonly code: string;
  readonly message: string;
  readonly line: number | null;
  readonly param: string | null;
}

export interface BatchCounts {
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
  readonly promptTokens: number;
  /** Prompt tokens found in the prefix cache. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Output tokens that were reasoning. */
  readonly reasoningTokens: number;
}

/** A client's request for a batch. */
export interface BatchSpec {
  readonly inputFileId: string;
  /** The endpoint that all lines must name. */
  readonly endpoint: string;
  readonly completionWindow: string;
  /** Seconds of the `completionWindow`. */
  readonly windowSeconds: number;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Whether any bad line fails the batch. Otherwise bad lines get an error in the error file. */
  readonly strict: boolean;
  /** Number of seconds for which the output files are kept; null: until they are deleted. */
  readonly outputSeconds: number | null;
}

export interface BatchRecord extends BatchSpec {
  readonly id: string;
  readonly owner: string;
  readonly status: BatchStatus;
  readonly problems: readonly BatchProblem[];
  readonly outputFileId: string | null;
  readonly errorFileId: string | null;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly inProgressAt: number | null;
  readonly finalizingAt: number | null;
  readonly completedAt: number | null;
  readonly failedAt: number | null;
  readonly expiredAt: number | null;
  readonly cancellingAt: number | null;
  readonly cancelledAt: number | null;
  /** Reason why the remaining lines get no answer; null while the batch runs normally. */
  readonly ending: "cancel" | "expire" | null;
  /** Lines that got no answer because of `ending`; missing until the batch has ended. */
  readonly unanswered?: number;
  /** The models that the lines name; missing until the file is checked. */
  readonly models?: readonly string[];
  /** Identity of the model or models; a batch that has begun resumes only with the same identity. */
  readonly settings: ModelIdentity | null;
  readonly counts: BatchCounts;
}

/** The result of a batch line. */
export interface LineAnswer {
  /** The line's custom_id; null if it has no valid one. */
  readonly custom_id: string | null;
  /** The line's answer; null if it has none. */
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: Readonly<Record<string, unknown>>;
  } | null;
  /** Reason why the line has no answer. */
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** A batch and its speed. */
export interface BatchView {
  readonly batch: BatchRecord;
  /** Tokens per second, and estimated remaining seconds; null while unknown. */
  readonly promptRate: number | null;
  readonly outputRate: number | null;
  readonly remaining: number | null;
}

export interface Page {
  /** Id of the entry before the first one of this page. */
  readonly after?: string;
  /** Id of the entry after the last one of this page. Cannot be combined with `after`. */
  readonly before?: string;
  readonly limit: number;
}

export interface Listed<T> {
  readonly data: T[];
  readonly hasMore: boolean;
}

export type ServiceErrorCode =
  | "file_not_found"
  | "batch_not_found"
  | "file_in_use"
  | "file_wrong_purpose"
  | "cursor_not_found"
  | "batch_has_ended"
  | "batch_has_not_ended"
  | "storage_full"
  | "quota_exceeded"
  | "too_many_transfers"
  | "upload_too_slow";

/** An error that the batch service reports to a client. */
export class ServiceError extends WordedError {
  override name = "ServiceError";
  constructor(readonly code: ServiceErrorCode, message: string | Wording, options?: ErrorOptions) {
    super(message, options);
  }
}

export function hasEnded({ status }: Pick<BatchRecord, "status">): boolean {
  return (ENDED_STATUSES as readonly string[]).includes(status);
}
