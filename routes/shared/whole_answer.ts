import type { ConnectionLimits } from "./context.ts";
import { type ApiError, clientLeft } from "./errors.ts";
import { settledWithin } from "./settled.ts";

/**
 * One JSON answer. What fails within `headersAfterMs` is thrown, so that it gets a status of its own: all refusals do.
 * After that time the status line is sent, because Deno notices that a client left only once the answer has begun, where the
 * request's body came in a packet of its own (seen with 2.9.6). Failures after that reset the connection.
 */
export async function wholeAnswer(
  answer: Promise<unknown>,
  abort: AbortController,
  { headersAfterMs }: Pick<ConnectionLimits, "headersAfterMs">,
  report: (error: unknown) => ApiError,
): Promise<Response> {
  if (await settledWithin(answer, headersAfterMs)) return Response.json(await answer);
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      try {
        controller.enqueue(new TextEncoder().encode(JSON.stringify(await answer)));
        controller.close();
      } catch (error) {
        controller.error(report(error));
      }
    },
    cancel: () => abort.abort(clientLeft()),
  });
  return new Response(body, { headers: { "content-type": "application/json" } });
}
