import type { z } from "@hono/zod-openapi";
import { ServiceError } from "../../jobs/types.ts";
import {
  ConstraintError,
  EngineError,
  ModelError,
  type ModelState,
  render,
  type Wording,
  wordingOf,
  type Words,
} from "../../engine/mod.ts";
import { errorAnswer } from "../generation/answers.ts";

/** Body of every refusal for OpenAI's clients. All four keys are always present. */
export interface ErrorBody {
  error: {
    message: string;
    type: string;
    param: string | null;
    code: string | null;
    [detail: string]: string | number | null;
  };
}

/** The error format of an API. */
export interface ErrorShape {
  /** Name of the schema in the OpenAPI document. */
  readonly name: string;
  readonly schema: z.ZodType;
  /** Returns the error's body. `requestId` is set for an answer over HTTP. */
  body(error: ApiError, requestId?: string): { error: { code: string | null } | string };
  /** Header from which clients read the request id, besides x-request-id. */
  readonly idHeader?: string;
}

interface ApiErrorOptions {
  type?: string;
  /** The wrong field, such as `messages[0].content`. */
  param?: string;
  /** Numbers that the error body has besides the four keys. */
  details?: Record<string, number>;
  headers?: Record<string, string>;
}

/** Words settings in messages for clients, who can only ask the server's operator to change them. */
export const asServerSettings: Words = (settings) => {
  const named = Object.entries(settings).map(([name, value]) =>
    value === undefined ? name : `${name}=${value}`
  );
  return `the server setting${named.length > 1 ? "s" : ""} ${named.join(" and ")}`;
};

/**
 * A refusal or failure with its status, code and field for the API. Settings in its message are worded as settings of
 * the server.
 */
export class ApiError extends Error {
  override name = "ApiError";
  readonly type: string;
  readonly param: string | null;
  readonly details: Record<string, number>;
  readonly headers: Record<string, string>;

  constructor(
    readonly status: number,
    readonly code: string,
    message: string | Wording,
    options: ApiErrorOptions = {},
  ) {
    super(typeof message === "string" ? message : render(message, asServerSettings));
    this.type = options.type ?? (status >= 500 ? "server_error" : "invalid_request_error");
    this.param = options.param ?? null;
    this.details = options.details ?? {};
    this.headers = options.headers ?? {};
  }

  body(): ErrorBody {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code, ...this.details } };
  }
}

export const OPENAI_ERRORS: ErrorShape = {
  name: "Error",
  schema: errorAnswer,
  body: (error) => error.body(),
};

const RETRY_AFTER_SECONDS = "1";

/**
 * Header that stops retries: official clients retry a failed request twice. If the failure would repeat, that costs two
 * more prefills.
 */
const NO_RETRY = { "x-should-retry": "false" };

export function shuttingDown(): ApiError {
  return new ApiError(503, "shutting_down", "The server is shutting down; send the request again later", {
    headers: { "retry-after": RETRY_AFTER_SECONDS },
  });
}

/** Returns why models in these states take no work, or undefined if one does. Reveals no internals of the server. */
export function notReady(states: readonly ModelState[]): ApiError | undefined {
  const has = (state: ModelState) => states.includes(state);
  if (states.length === 0 || has("ready") || has("unloaded")) return undefined;
  if (has("draining")) return shuttingDown();
  if (!has("loading")) {
    return new ApiError(503, "engine_failed", "The engine has failed; the server's log says why");
  }
  return new ApiError(503, "engine_loading", "The model is being loaded; send the request again later", {
    headers: { "retry-after": RETRY_AFTER_SECONDS },
  });
}

/** Returns the error for a full queue. `seconds`: time that the client should wait. */
export function queueFull(message: string | Wording, seconds: number): ApiError {
  return new ApiError(429, "queue_full", message, {
    type: "rate_limit_error",
    headers: { "retry-after": String(seconds) },
  });
}

/** Returns the abort reason for an answer without a reader. */
export function clientLeft(): ApiError {
  return new ApiError(499, "client_closed_request", "The client left before the answer was complete");
}

/** Returns the error for a body that is shorter than its announced length. */
export function incompleteBody(): ApiError {
  return new ApiError(400, "incomplete_body", "The request body ended before it was complete");
}

/** Returns the error 413 for a too large body. `found`: its bytes, if known. `which`: the bytes that count, if not all. */
export function tooLarge(most: number, found?: number, which = ""): ApiError {
  const message = `The request body must be at most ${most} bytes${which && ` ${which}`} (got ${
    found ?? "more"
  }); send less in one request`;
  return new ApiError(413, "request_too_large", message, { headers: { connection: "close" } });
}

/** Turns any thrown value into an ApiError. Unexpected errors reveal no internals of the server. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof EngineError) return fromEngine(error);
  if (error instanceof ModelError) return fromModels(error);
  if (error instanceof ServiceError) return fromService(error);
  if (error instanceof Error && error.name === "ChatTemplateError") {
    return new ApiError(400, "chat_template_error", error.message, { param: "messages" });
  }
  if (error instanceof ConstraintError) {
    return new ApiError(400, "invalid_constraint", error.message, { param: "tools" });
  }
  return new ApiError(500, "internal_error", "The server failed on this request; its log says why", {
    headers: NO_RETRY,
  });
}

function fromEngine(error: EngineError): ApiError {
  const { code, details } = error;
  const message = wordingOf(error);
  switch (code) {
    case "context_length_exceeded":
    case "invalid_request":
    case "invalid_constraint":
    case "not_supported":
      return new ApiError(400, code, message, { details });
    case "queue_full":
      return queueFull(message, Number(RETRY_AFTER_SECONDS));
    case "engine_closed":
      return shuttingDown();
    case "engine_unavailable":
    case "device_lost":
      return new ApiError(503, code, message, { details, headers: { "retry-after": RETRY_AFTER_SECONDS } });
    case "constraint_failed":
      // A retry would most likely fail again, but the engine works.
      return new ApiError(422, code, message, { details });
    case "prompt_not_stored":
      return new ApiError(507, code, message, { details });
    case "engine_failed":
      return new ApiError(500, code, message, { details, headers: NO_RETRY });
  }
}

function fromModels(error: ModelError): ApiError {
  const { code, more: { retryAfter, details } } = error;
  const message = wordingOf(error);
  const headers = { "retry-after": String(retryAfter ?? RETRY_AFTER_SECONDS) };
  switch (code) {
    case "model_not_found":
      return new ApiError(404, code, message, { param: "model" });
    case "model_required":
    case "model_stays":
      return new ApiError(400, code, message, { param: "model" });
    case "queue_full":
      return new ApiError(429, code, message, { type: "rate_limit_error", headers });
    case "no_memory_for_model":
    case "model_load_failed":
      return new ApiError(503, code, message, { param: "model", details, headers });
  }
}

function fromService(error: ServiceError): ApiError {
  const { code } = error;
  const message = wordingOf(error);
  switch (code) {
    case "file_not_found":
    case "batch_not_found":
      return new ApiError(404, code, message, { param: "id" });
    case "file_wrong_purpose":
      return new ApiError(400, "invalid_value", message, { param: "input_file_id" });
    case "cursor_not_found":
      return new ApiError(400, "invalid_value", message, { param: "after" });
    case "file_in_use":
    case "batch_has_ended":
    case "batch_has_not_ended":
      return new ApiError(400, code, message, { param: "id" });
    case "too_many_transfers":
      return new ApiError(429, code, message, {
        type: "rate_limit_error",
        headers: { "retry-after": RETRY_AFTER_SECONDS },
      });
    case "upload_too_slow":
      return new ApiError(408, "body_timeout", message, { headers: { connection: "close" } });
    case "quota_exceeded":
      return new ApiError(413, code, message, { param: "file", headers: { connection: "close" } });
    case "storage_full":
      return new ApiError(507, code, message, { headers: NO_RETRY });
  }
}

/** Returns whether the operator should see the error: it is unexpected, and waiting does not fix it. */
export function isUnforeseen(error: unknown, answer: ApiError): boolean {
  return answer.status >= 500 && answer.status !== 503 && answer !== error;
}

export function requestId(): string {
  return `req_${crypto.randomUUID().replaceAll("-", "")}`;
}
