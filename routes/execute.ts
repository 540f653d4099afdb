import { type Engine, type ModelUser, oneModel } from "../engine/mod.ts";
import { GENERATION_URLS, GENERATIONS } from "./generations.ts";
import { ApiError, type ErrorShape, isUnforeseen, OPENAI_ERRORS, toApiError } from "./core/errors.ts";
import type { BeginOptions } from "./generation/generation_endpoint.ts";
import { checkDepth } from "./core/json.ts";

export interface ExecuteRequest extends BeginOptions {
  /** Path of the endpoint, one of GENERATION_URLS. */
  readonly url: string;
  readonly body: unknown;
  readonly signal?: AbortSignal;
  /** Receives every unexpected failure. The result has no details of the failure. */
  readonly onError?: (error: unknown) => void;
}

export interface ExecuteResult {
  readonly status: number;
  /** The answer, or the error as HTTP clients receive it. */
  readonly body: Record<string, unknown>;
}

/** Why a batch line is refused before its request is read. */
interface Refusal {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  /** Line number of the request in the batch file. */
  readonly line: number;
}

/** Returns the 400 body for a refused line, in the error format of its endpoint. */
export function refusalBody(url: string | undefined, { code, message, param, line }: Refusal) {
  const error = new ApiError(400, code, message, { param: param ?? undefined, details: { line } });
  return { ...errorsOf(url).body(error) };
}

function errorsOf(url: string | undefined): ErrorShape {
  return GENERATIONS.find((generation) => generation.url === url)?.errors ?? OPENAI_ERRORS;
}

/**
 * Answers one request as the server would, without HTTP. Refusals and failures are returned as results; it rejects only
 * when `signal` aborts, with the signal's reason. Streams are not supported: `stream: true` is refused.
 */
export async function execute(
  served: ModelUser | Engine,
  request: ExecuteRequest,
): Promise<ExecuteResult> {
  const signal = request.signal ?? new AbortController().signal;
  signal.throwIfAborted();
  const generation = GENERATIONS.find(({ url }) => url === request.url);
  try {
    if (!generation) {
      const message = `Invalid "url": must be ${GENERATION_URLS.join(" or ")} (got ${
        JSON.stringify(request.url)
      })`;
      throw new ApiError(404, "unknown_url", message, { param: "url" });
    }
    checkDepth(request.body);
    const running = await generation.begin(
      "use" in served ? served : oneModel(served),
      request.body,
      request,
      signal,
    );
    try {
      if (!running.stream) return { status: 200, body: await running.answer(signal) };
    } finally {
      running.release();
    }
    const message = 'Unsupported "stream": true: the answer is delivered whole; leave the field out';
    throw new ApiError(400, "unsupported_value", message, { param: "stream" });
  } catch (error) {
    signal.throwIfAborted();
    const refusal = toApiError(error);
    if (isUnforeseen(error, refusal)) request.onError?.(error);
    return { status: refusal.status, body: { ...errorsOf(request.url).body(refusal) } };
  }
}
