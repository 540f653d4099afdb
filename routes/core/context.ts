import type { ResponseStore } from "../../jobs/service/response_store.ts";
import type { BatchService } from "../../jobs/service/service.ts";
import type { Models } from "../../engine/mod.ts";
import type { FetchImage } from "../generation/fetch_image.ts";
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
    /** The client's IP address; undefined for a Unix socket. */
    address?: string;
  };
  Variables: {
    caller: Caller;
    record: RequestRecord;
    requestId: string;
    /** The error format of the path's API, if it has its own. */
    errors?: ErrorShape;
  };
}

/** Whether the server accepts new work. The app and the server's shutdown share this object. */
export interface Lifecycle {
  draining: boolean;
}

/** Limits of one connection, in bytes and milliseconds. */
export interface ConnectionLimits {
  /** Maximum bytes of a request body. */
  readonly bodyBytes: number;
  /** Maximum bytes of all bodies that are arriving, without small bodies. One sender may use half of them. */
  readonly bodiesBytes: number;
  /** Maximum bytes of a request body with images in base64, for a model that reads images. */
  readonly imageBodyBytes: number;
  /** Maximum bytes of all bodies larger than `bodyBytes`, until their requests end. One sender may use half of them. */
  readonly imageBodiesBytes: number;
  /** Milliseconds for which a body may wait for bytes of `bodiesBytes`. */
  readonly bodiesMs: number;
  /** Maximum bytes of an uploaded file. */
  readonly uploadBytes: number;
  /** Milliseconds in which the head of a request must arrive, also on a new connection. */
  readonly headMs: number;
  /** Milliseconds without a further request after which a connection is closed. */
  readonly idleMs: number;
  /** Milliseconds in which a body must arrive. An uploaded file gets one more second per `bodyBytesPerSecond` bytes. */
  readonly bodyMs: number;
  /** Minimum speed of an uploaded file, in bytes a second. */
  readonly bodyBytesPerSecond: number;
  /** Milliseconds after which a stream's status line is sent, even without a first chunk. */
  readonly headersAfterMs: number;
  /** Maximum bytes of a stream that wait for a slow client. */
  readonly unreadBytes: number;
  /** Milliseconds after which a client that accepts nothing is disconnected, while `unreadBytes` wait. */
  readonly stallMs: number;
  /** Milliseconds without output after which a stream gets a comment, so that proxies keep it open. */
  readonly keepAliveMs: number;
}

export const DEFAULT_LIMITS: ConnectionLimits = {
  bodyBytes: 8 * 2 ** 20,
  bodiesBytes: 64 * 2 ** 20,
  imageBodyBytes: 64 * 2 ** 20,
  imageBodiesBytes: 128 * 2 ** 20,
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
  /** Total bytes of the model to download. */
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
  /** Downloads models for requests; undefined: no downloads. */
  readonly pulls?: ModelPulls;
  /** Stores files and batches; undefined: their endpoints are not served. */
  readonly batches?: BatchService;
  readonly responses: ResponseStore;
  /** Fetches images at https URLs; undefined: such URLs are refused. */
  readonly fetchImage?: FetchImage;
  readonly limits: ConnectionLimits;
  /** Memory budget for request bodies that are still arriving. */
  readonly bodies: BodyBudget;
  /** Memory budget for bodies larger than `bodyBytes`, which only requests with images may have. */
  readonly imageBodies: BodyBudget;
  readonly lifecycle: Lifecycle;
  readonly metrics: Metrics;
  /** Returns the error as clients see it, and reports unexpected errors to the operator. */
  readonly report: (error: unknown) => ApiError;
}

/** Returns the batch service. Throws if there is none. */
export function storage({ batches }: AppContext): BatchService {
  if (!batches) throw new Error("File and batch endpoints need a data folder");
  return batches;
}
