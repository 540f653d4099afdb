import type { Engine } from "../engine/types.ts";
import { prepareChat } from "./endpoints/chat_completions.ts";
import { prepareCompletion } from "./endpoints/completions.ts";
import { ApiError, isUnforeseen, toApiError } from "./shared/errors.ts";
import type { Prepared, RunOptions } from "./shared/generation.ts";
import { checkDepth } from "./shared/json.ts";
import { chatRequest } from "./schemas/chat.ts";
import { check } from "./shared/check.ts";
import { completionRequest } from "./schemas/completions.ts";

/** The endpoints that run without HTTP too. */
export const EXECUTABLE_URLS = ["/v1/chat/completions", "/v1/completions"] as const;

export type ExecutableUrl = typeof EXECUTABLE_URLS[number];

export function isExecutable(url: string): url is ExecutableUrl {
  return (EXECUTABLE_URLS as readonly string[]).includes(url);
}

/** Checks a body as a stranger's; throws ApiError, or what the engine throws for a prompt that it refuses. */
export function prepare(engine: Engine, url: ExecutableUrl, body: unknown, options: RunOptions): Prepared {
  switch (url) {
    case "/v1/chat/completions":
      return prepareChat(engine, check(chatRequest, body), options);
    case "/v1/completions":
      return prepareCompletion(engine, check(completionRequest, body), options);
  }
}

export interface ExecuteRequest extends RunOptions {
  /** The path of the endpoint, one of EXECUTABLE_URLS. */
  readonly url: string;
  readonly body: unknown;
  readonly signal?: AbortSignal;
  /** Told of every failure that nobody foresaw; the result says nothing of it. */
  readonly onError?: (error: unknown) => void;
}

export interface ExecuteResult {
  readonly status: number;
  /** The answer, or `{error}` as HTTP clients get it. */
  readonly body: Record<string, unknown>;
}

/**
 * Answers one request as the server would, without HTTP. Refusals and failures are results; only an aborted `signal`
 * rejects, with its reason. A stream cannot be had this way: `stream: true` is refused.
 */
export async function execute(engine: Engine, request: ExecuteRequest): Promise<ExecuteResult> {
  const signal = request.signal ?? new AbortController().signal;
  signal.throwIfAborted();
  try {
    if (!isExecutable(request.url)) {
      const message = `Unknown url ${JSON.stringify(request.url)}, allowed are ${EXECUTABLE_URLS.join(", ")}`;
      throw new ApiError(404, "unknown_url", message, { param: "url" });
    }
    checkDepth(request.body);
    const prepared = prepare(engine, request.url, request.body, request);
    if (prepared.stream) {
      const message = 'Unsupported "stream": true: the answer is delivered whole; leave the field out';
      throw new ApiError(400, "unsupported_value", message, { param: "stream" });
    }
    return { status: 200, body: await prepared.answer(signal) };
  } catch (error) {
    signal.throwIfAborted();
    const refusal = toApiError(error);
    if (isUnforeseen(error, refusal)) request.onError?.(error);
    return { status: refusal.status, body: { ...refusal.body() } };
  }
}
