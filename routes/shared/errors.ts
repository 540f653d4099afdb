import type { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ServiceError } from "../../jobs/types.ts";
import {
  ConstraintError,
  type Engine,
  EngineError,
  type EngineErrorCode,
  ModelError,
  type ModelState,
} from "../../engine/types.ts";
import { errorAnswer } from "./answers.ts";
import type { Env } from "./context.ts";

/** What clients of the OpenAI API find in the body of every refusal: all four keys, always. */
export interface ErrorBody {
  error: {
    message: string;
    type: string;
    param: string | null;
    code: string | null;
    [detail: string]: string | number | null;
  };
}

/** How errors look in the answers of an API. */
export interface ErrorShape {
  /** Of the schema in the OpenAPI document. */
  readonly name: string;
  readonly schema: z.ZodType;
  /** Batches read `error.code`. `requestId`: of an answer over HTTP. */
  body(error: ApiError, requestId?: string): { error: { code: string | null } };
  /** The header of answers in which clients look for the request's id, beside x-request-id. */
  readonly idHeader?: string;
}

interface ApiErrorOptions {
  type?: string;
  /** The field that is to blame, such as `messages[0].content`. */
  param?: string;
  /** Numbers that stand beside the four keys. */
  details?: Record<string, number>;
  headers?: Record<string, string>;
}

/** A refusal or failure with its place in the API. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly type: string;
  readonly param: string | null;
  readonly details: Record<string, number>;
  readonly headers: Record<string, string>;

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    options: ApiErrorOptions = {},
  ) {
    super(message);
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

/** `x-should-retry` is read by the official clients: a failure that would repeat must not cost two more prefills. */
const NO_RETRY = { "x-should-retry": "false" };

export function shuttingDown(): ApiError {
  return new ApiError(503, "shutting_down", "The server is shutting down; send the request again later", {
    headers: { "retry-after": RETRY_AFTER_SECONDS },
  });
}

/** Why models of these states take no work; undefined where any does. Says nothing about the inside of the server. */
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

/** `seconds`: when to come back. */
export function queueFull(message: string, seconds: number): ApiError {
  return new ApiError(429, "queue_full", message, {
    type: "rate_limit_error",
    headers: { "retry-after": String(seconds) },
  });
}

/** The reason of an abort because nobody reads the answer any more. */
export function clientLeft(): ApiError {
  return new ApiError(499, "client_closed_request", "The client left before the answer was complete");
}

/** A body of which less came than its head promised. */
export function incompleteBody(): ApiError {
  return new ApiError(400, "incomplete_body", "The request body ended before it was complete");
}

/** The answer for whatever was thrown. Errors that nobody foresaw say nothing about the inside of the server. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof EngineError) return fromEngine(error.code, error.message, error.details);
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

function fromEngine(code: EngineErrorCode, message: string, details: Record<string, number>): ApiError {
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
      // The same request would most likely fail again, and nothing is wrong with the engine.
      return new ApiError(422, code, message, { details });
    case "prompt_not_stored":
      return new ApiError(507, code, message, { details });
    case "engine_failed":
      return new ApiError(500, code, message, { details, headers: NO_RETRY });
  }
}

function fromModels({ code, message, more: { retryAfter, details } }: ModelError): ApiError {
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

function fromService({ code, message }: ServiceError): ApiError {
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

/** A context overflow always says how long the prompt was and how much fits, whoever noticed it. */
export function withPromptLength(error: unknown, engine: Engine, promptTokens: number): unknown {
  if (!(error instanceof EngineError) || error.code !== "context_length_exceeded") return error;
  return new EngineError(error.code, error.message, {
    n_prompt_tokens: promptTokens,
    n_ctx: engine.model.contextLength,
    ...error.details,
  });
}

/** Whether an operator should hear of the error behind an answer: nobody foresaw it, and a wait does not mend it. */
export function isUnforeseen(error: unknown, answer: ApiError): boolean {
  return answer.status >= 500 && answer.status !== 503 && answer !== error;
}

/**
 * The error as an answer of its own, noted in the record of its request; through the context of its request, so that headers set there are sent too, and in the
 * shape of the path's API.
 */
export function errorResponse(error: ApiError, c?: Context<Env>): Response {
  c?.get("record")?.failed(error.code);
  const body = (c?.get("errors") ?? OPENAI_ERRORS).body(error, c?.get("requestId"));
  const response = Response.json(body, { status: error.status, headers: error.headers });
  return c ? c.newResponse(response.body, response) : response;
}

export function requestId(): string {
  return `req_${crypto.randomUUID().replaceAll("-", "")}`;
}
