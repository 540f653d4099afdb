import type { BatchService } from "../../jobs/service.ts";
import type { Models } from "../../engine/types.ts";
import type { Caller } from "./caller.ts";
import type { Metrics } from "./metrics.ts";
import type { RequestRecord } from "./request_record.ts";
import type { ApiError, ErrorShape } from "./errors.ts";

/** Hono's type parameters of this app. */
export interface Env {
  Bindings: {
    /** Whether the whole answer was sent, once its connection is done with it; without it answers end when they are made. */
    sent?: Promise<boolean>;
  };
  Variables: {
    caller: Caller;
    record: RequestRecord;
    requestId: string;
    /** Set where the path belongs to an API whose errors have a shape of their own. */
    errors?: ErrorShape;
  };
}

/** Whether new work is welcome; shared by the app and the server that stops it. */
export interface Lifecycle {
  draining: boolean;
}

/** Bounds of one connection, in bytes and milliseconds. */
export interface ConnectionLimits {
  /** Largest request body. */
  readonly bodyBytes: number;
  /** Largest uploaded file. */
  readonly uploadBytes: number;
  /** Within this time the head of a request must be there, and a new connection must send one. */
  readonly headMs: number;
  /** A connection on which no further request comes is closed after this time. */
  readonly idleMs: number;
  /** Within this time a body must be there; an uploaded file has a second more for each `bodyBytesPerSecond`. */
  readonly bodyMs: number;
  /** The slowest that an uploaded file may arrive. */
  readonly bodyBytesPerSecond: number;
  /** The status line of a stream is sent after this time, even if there is nothing to say yet. */
  readonly headersAfterMs: number;
  /** Bytes of a stream that may wait for its reader. */
  readonly unreadBytes: number;
  /** A reader that takes nothing for this long while that many bytes wait is cut off. */
  readonly stallMs: number;
  /** Silence after which a stream gets a comment, so that proxies keep it open. */
  readonly keepAliveMs: number;
}

export const DEFAULT_LIMITS: ConnectionLimits = {
  bodyBytes: 8 * 2 ** 20,
  uploadBytes: 4 * 2 ** 30,
  headMs: 10_000,
  idleMs: 60_000,
  bodyMs: 30_000,
  bodyBytesPerSecond: 8 * 2 ** 10,
  headersAfterMs: 100,
  unreadBytes: 256 * 2 ** 10,
  stallMs: 15_000,
  keepAliveMs: 15_000,
};

/** What every endpoint knows. */
export interface AppContext {
  readonly models: Models;
  /** Keeps files and batches; without it their endpoints are not served. */
  readonly batches?: BatchService;
  readonly limits: ConnectionLimits;
  readonly lifecycle: Lifecycle;
  readonly metrics: Metrics;
  /** The error as clients see it; tells the operator of those that nobody foresaw. */
  readonly report: (error: unknown) => ApiError;
}

/** What keeps files and batches, for endpoints that are only served where there is one. */
export function storage({ batches }: AppContext): BatchService {
  if (!batches) throw new Error("An endpoint of files or batches is served without a place that keeps them");
  return batches;
}
