import type { ConnectionLimits } from "./context.ts";
import { type ApiError, clientLeft } from "./errors.ts";
import { settledWithin } from "./settled.ts";

const HEADERS = {
  // no-transform: compression by a proxy would delay tokens.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

/** Media types of streamed answers. */
export const EVENTS = "text/event-stream";
export const LINES = "application/x-ndjson";

/** Differences between the streams of the APIs. */
export interface StreamShape {
  /** Whether the stream consists of JSON lines instead of server-sent events. */
  readonly lines?: boolean;
  /** Returns the line that keeps an idle stream of JSON lines open. Server-sent events use comments instead. */
  readonly waiting?: () => object;
  /** Whether each event is named after the `type` of its object. */
  readonly named: boolean;
  /** Whether `[DONE]` ends the stream. */
  readonly done: boolean;
  /** Returns the events that end a failed stream. */
  readonly failure: (error: ApiError) => readonly object[];
  /** Called when no further chunk will be computed. */
  readonly ended?: () => void;
}

const PLAIN: StreamShape = { named: false, done: true, failure: (error) => [error.body()] };

const utf8 = new TextEncoder();
const DONE = utf8.encode("data: [DONE]\n\n");
const KEEP_ALIVE = utf8.encode(": waiting\n\n");

/**
 * Returns the chunks as server-sent events or JSON lines. A failure before the first chunk, within `headersAfterMs`, is
 * thrown and gets its own status; a later one becomes an error event or line. Aborts `abort` when the reader leaves or
 * accepts nothing for `stallMs`.
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
  const type = shape.lines ? LINES : EVENTS;
  const headers = { ...HEADERS, "content-type": `${type}; charset=utf-8` };
  return new Response(streamBody(first, chunks, abort, limits, report, shape), { headers });
}

function streamBody(
  first: Promise<IteratorResult<unknown>>,
  chunks: AsyncGenerator<unknown>,
  abort: AbortController,
  { unreadBytes, stallMs, keepAliveMs }: ConnectionLimits,
  report: (error: unknown) => ApiError,
  { lines, waiting, named, done, failure, ended }: StreamShape,
): ReadableStream<Uint8Array> {
  const event = (data: unknown) => {
    if (lines) return utf8.encode(`${JSON.stringify(data)}\n`);
    const name = named ? `event: ${(data as { type: string }).type}\n` : "";
    return utf8.encode(`${name}data: ${JSON.stringify(data)}\n\n`);
  };
  let drained = () => {};
  abort.signal.addEventListener("abort", () => drained(), { once: true });

  /** Resolves when the stream's reader has caught up; aborts the stream if that takes too long. */
  async function room(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    if (controller.desiredSize! > 0 || abort.signal.aborted) return;
    const timer = setTimeout(() => abort.abort(clientLeft()), stallMs);
    await new Promise<void>((resolve) => drained = resolve);
    clearTimeout(timer);
  }

  async function pump(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    const keepAlive = setInterval(() => {
      const sign = lines ? waiting && event(waiting()) : KEEP_ALIVE;
      if (sign && controller.desiredSize! > 0) controller.enqueue(sign);
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
      // The promise is not returned: a pending start would delay pull. On an error the connection is reset.
      pump(controller).catch((error) => controller.error(error));
    },
    pull: () => drained(),
    cancel: () => abort.abort(clientLeft()),
  }, new ByteLengthQueuingStrategy({ highWaterMark: unreadBytes }));
}
