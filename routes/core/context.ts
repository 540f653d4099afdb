import type { ResponseStore } from "../../jobs/service/response_store.ts";
import type { BatchService } from "../../jobs/service/service.ts";
import type { Models } from "../../engine/mod.ts";
import type { Caller } from "../access/caller.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { RequestRecord } from "../metrics/request_record.ts";
import type { BodyBudget } from "./body_budget.ts";
import type { ApiError, ErrorShape } from "./errors.ts";
import type { ParameterOptions } from "./parameters.ts";

/** Hono's type parameters of this app. */
export interface Env {
  Bindings: {
    /**
     * Resolves to whether the whole answer was sent, once the connection has finished it. If missing, an answer counts
     * as sent when it is generated.
     */
    sent?: Promise<boolean>;
    /** The client's IP address; missing for a Unix socket. */
    address?: string;
  };
  Variables: {
    caller: Caller;
    record: RequestRecord;
    requestId: string;
    /** Set for paths of an API with its own error format. */
    errors?: ErrorShape;
  };
}

/** Whether the server accepts new work. Shared by the app and the server that stops it. */
export interface Lifecycle {
  draining: boolean;
}

/** Limits of one connection, in bytes and milliseconds. */
export interface ConnectionLimits {
  /** Largest request body. */
  readonly bodyBytes: number;
  /** Maximum bytes of all bodies that are arriving. One sender may use half of them. Small bodies do not count. */
  readonly bodiesBytes: number;
  /** Maximum time that a body waits for its bytes of `bodiesBytes`. */
  readonly bodiesMs: number;
  /** Largest uploaded file. */
  readonly uploadBytes: number;
  /** Time for the head of a request to arrive, also the first one on a new connection. */
  readonly headMs: number;
  /** Time after which a connection without a further request is closed. */
  readonly idleMs: number;
  /** Time for a body to arrive. An uploaded file gets one more second per `bodyBytesPerSecond` bytes. */
  readonly bodyMs: number;
  /** Minimum speed of an uploaded file. */
  readonly bodyBytesPerSecond: number;
  /** Time after which a stream's status line is sent, even without a first chunk. */
  readonly headersAfterMs: number;
  /** Maximum bytes of a stream that wait for its reader. */
  readonly unreadBytes: number;
  /** Time after which a reader is cut off that takes nothing while `unreadBytes` wait. */
  readonly stallMs: number;
  /** Time without output after which a stream gets a comment, so that proxies keep it open. */
  readonly keepAliveMs: number;
}

export const DEFAULT_LIMITS: ConnectionLimits = {
  bodyBytes: 8 * 2 ** 20,
  bodiesBytes: 64 * 2 ** 20,
  bodiesMs: 5000,
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

/** The progress of a download, with the names of Ollama's fields. */
export interface PullRow {
  readonly status: string;
  readonly digest?: string;
  /** Bytes of the model. */
  readonly total?: number;
  readonly completed?: number;
}

/** Downloads models for requests. */
export interface ModelPulls {
  /**
   * Downloads the model of this name. Requests for the same model share one download, which stops when all their
   * clients have disconnected. Throws ApiError, or the signal's reason.
   */
  pull(name: string, signal: AbortSignal): AsyncGenerator<PullRow>;
}

/** The context that every endpoint receives. */
export interface AppContext extends ParameterOptions {
  readonly models: Models;
  /** Without it requests download no models. */
  readonly pulls?: ModelPulls;
  /** Stores files and batches; without it their endpoints are not served. */
  readonly batches?: BatchService;
  readonly responses: ResponseStore;
  readonly limits: ConnectionLimits;
  /** Memory budget for request bodies that are still arriving. */
  readonly bodies: BodyBudget;
  readonly lifecycle: Lifecycle;
  readonly metrics: Metrics;
  /** Returns the error as clients see it, and reports unexpected errors to the operator. */
  readonly report: (error: unknown) => ApiError;
}

/** Returns the batch service. Throws without one: its endpoints must not be served then. */
export function storage({ batches }: AppContext): BatchService {
  if (!batches) throw new Error("File and batch endpoints need a data folder");
  return batches;
}
