import type { ModelIdentity } from "./model_identity.ts";

/** The shapes that the batch service and its callers share. Times are Unix seconds. */

export type FilePurpose = "batch" | "batch_output";

export interface FileRecord {
  readonly id: string;
  /** Whose it is: callers of another owner do not find it. */
  readonly owner: string;
  readonly bytes: number;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly filename: string;
  readonly purpose: FilePurpose;
  /** Where its content is, under the data folder. */
  readonly path: string;
}

/** How a batch may end. */
export const ENDED_STATUSES = ["completed", "failed", "expired", "cancelled"] as const;
export type EndedStatus = typeof ENDED_STATUSES[number];
export type BatchStatus = EndedStatus | "validating" | "in_progress" | "finalizing" | "cancelling";

/** Why a batch failed: a bad line of its file, or without line what happened to the whole. */
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
  /** Prompt tokens that were found in the prefix cache. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Output tokens that were thought. */
  readonly reasoningTokens: number;
}

/** What a batch is asked for with. */
export interface BatchSpec {
  readonly inputFileId: string;
  /** The endpoint that all its lines name. */
  readonly endpoint: string;
  readonly completionWindow: string;
  /** Seconds that `completionWindow` stands for. */
  readonly windowSeconds: number;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Fail when any line is bad; otherwise bad lines are answered in the error file. */
  readonly strict: boolean;
  /** Seconds that the output files are kept, null: until they are deleted. */
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
  /** Why the lines that are left get no answer. */
  readonly ending: "cancel" | "expire" | null;
  /** The models that its lines name, once they are known. */
  readonly models?: readonly string[];
  /** The model that answers, or several; a batch that has begun resumes only with the same. */
  readonly settings: ModelIdentity | null;
  readonly counts: BatchCounts;
}

/** A batch and how fast it progresses. */
export interface BatchView {
  readonly batch: BatchRecord;
  /** Tokens a second, and seconds left; null while unknown. */
  readonly promptRate: number | null;
  readonly outputRate: number | null;
  readonly remaining: number | null;
}

export interface Page {
  /** Id of the entry before the first. */
  readonly after?: string;
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
  | "storage_full"
  | "quota_exceeded"
  | "too_many_transfers"
  | "upload_too_slow";

/** What the batch service refuses. */
export class ServiceError extends Error {
  override name = "ServiceError";
  constructor(readonly code: ServiceErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

export function hasEnded({ status }: Pick<BatchRecord, "status">): boolean {
  return (ENDED_STATUSES as readonly string[]).includes(status);
}
