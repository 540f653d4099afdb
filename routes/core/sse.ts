import type { ConnectionLimits } from "./context.ts";
import { type ApiError, clientLeft } from "./errors.ts";
import { settledWithin } from "./settled.ts";

const HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  // no-transform, because compression would delay tokens.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

/** Differences between the streams of the APIs. */
export interface StreamShape {
  /** Each event is named after the `type` of its object. */
  readonly named: boolean;
  /** `[DONE]` ends the stream. */
  readonly done: boolean;
  /** Returns the events that end a failed stream. */
  readonly failure: (error: ApiError) => readonly object[];
  /** Called when no chunk is computed any more. */
  readonly ended?: () => void;
}

const PLAIN: StreamShape = { named: false, done: true, failure: (error) => [error.body()] };

const utf8 = new TextEncoder();
const DONE = utf8.encode("data: [DONE]\n\n");
const KEEP_ALIVE = utf8.encode(": waiting\n\n");

/**
 * Returns the chunks as server-sent events. A failure before the first chunk, within `headersAfterMs`, is thrown, so
 * that it still gets its own status; later failures become an error event. Aborts `abort` when the reader leaves, or
 * takes nothing for `stallMs`.
 */
export async function eventStream(
  chunks: AsyncGenerator<unknown>,
  abort: AbortController,
  limits: ConnectionLimits,
  report: (error: unknown) => ApiError,
  shape: StreamShape = PLAIN,
): Promise<Response> {
  const first = chunks.next();
  try {
    await settledWithin(first, limits.headersAfterMs);
  } catch (error) {
    shape.ended?.();
    throw error;
  }
  return new Response(streamBody(first, chunks, abort, limits, report, shape), { headers: HEADERS });
}

function streamBody(
  first: Promise<IteratorResult<unknown>>,
  chunks: AsyncGenerator<unknown>,
  abort: AbortController,
  { unreadBytes, stallMs, keepAliveMs }: ConnectionLimits,
  report: (error: unknown) => ApiError,
  { named, done, failure, ended }: StreamShape,
): ReadableStream<Uint8Array> {
  const event = (data: unknown) => {
    const name = named ? `event: ${(data as { type: string }).type}\n` : "";
    return utf8.encode(`${name}data: ${JSON.stringify(data)}\n\n`);
  };
  let drained = () => {};
  abort.signal.addEventListener("abort", () => drained(), { once: true });

  /** Resolves when the reader has caught up; aborts when it takes too long. */
  async function room(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    if (controller.desiredSize! > 0 || abort.signal.aborted) return;
    const timer = setTimeout(() => abort.abort(clientLeft()), stallMs);
    await new Promise<void>((resolve) => drained = resolve);
    clearTimeout(timer);
  }

  async function pump(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    const keepAlive = setInterval(() => {
      if (controller.desiredSize! > 0) controller.enqueue(KEEP_ALIVE);
    }, keepAliveMs);
    try {
      for (let next = await first; !next.done; next = await chunks.next()) {
        controller.enqueue(event(next.value));
        await room(controller);
        abort.signal.throwIfAborted();
      }
      if (done) controller.enqueue(DONE);
    } catch (error) {
      if (abort.signal.aborted) throw error;
      for (const last of failure(report(error))) controller.enqueue(event(last));
    } finally {
      clearInterval(keepAlive);
      await chunks.return(undefined).finally(ended);
    }
    controller.close();
  }

  return new ReadableStream<Uint8Array>({
    start(controller) {
      // Not returned: a pending start would delay pull. On an error the connection is reset.
      pump(controller).catch((error) => controller.error(error));
    },
    pull: () => drained(),
    cancel: () => abort.abort(clientLeft()),
  }, new ByteLengthQueuingStrategy({ highWaterMark: unreadBytes }));
}
