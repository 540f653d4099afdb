import type { ConnectionLimits } from "./context.ts";
import { type ApiError, clientLeft } from "./errors.ts";
import { settledWithin } from "./settled.ts";

const HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  // No-transform: compression would hold tokens back.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

const utf8 = new TextEncoder();
const event = (data: string) => utf8.encode(`data: ${data}\n\n`);
const KEEP_ALIVE = utf8.encode(": waiting\n\n");

/**
 * The chunks as server-sent events. What fails before the first chunk, within `headersAfterMs`, is thrown, so that it
 * still gets a status of its own; later failures become an error event. `abort` is called when the reader leaves, or
 * takes nothing for `stallMs`.
 */
export async function eventStream(
  chunks: AsyncGenerator<unknown>,
  abort: AbortController,
  limits: ConnectionLimits,
  report: (error: unknown) => ApiError,
): Promise<Response> {
  const first = chunks.next();
  await settledWithin(first, limits.headersAfterMs);
  return new Response(streamBody(first, chunks, abort, limits, report), { headers: HEADERS });
}

function streamBody(
  first: Promise<IteratorResult<unknown>>,
  chunks: AsyncGenerator<unknown>,
  abort: AbortController,
  { unreadBytes, stallMs, keepAliveMs }: ConnectionLimits,
  report: (error: unknown) => ApiError,
): ReadableStream<Uint8Array> {
  let drained = () => {};
  abort.signal.addEventListener("abort", () => drained(), { once: true });

  /** Resolves when the reader has caught up; aborts when it does not in time. */
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
        controller.enqueue(event(JSON.stringify(next.value)));
        await room(controller);
        abort.signal.throwIfAborted();
      }
      controller.enqueue(event("[DONE]"));
    } catch (error) {
      if (abort.signal.aborted) throw error;
      controller.enqueue(event(JSON.stringify(report(error).body())));
    } finally {
      clearInterval(keepAlive);
      await chunks.return(undefined);
    }
    controller.close();
  }

  return new ReadableStream<Uint8Array>({
    start(controller) {
      // Not returned: a pending start would hold back pull. On an error the connection is reset.
      pump(controller).catch((error) => controller.error(error));
    },
    pull: () => drained(),
    cancel: () => abort.abort(clientLeft()),
  }, new ByteLengthQueuingStrategy({ highWaterMark: unreadBytes }));
}
