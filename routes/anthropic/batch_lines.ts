import { z } from "@hono/zod-openapi";
import { concat } from "@std/bytes/concat.js";
import { bodyChunks, checkMediaType } from "../core/body.ts";
import type { BodyHold } from "../core/body_budget.ts";
import { check } from "../core/check.ts";
import type { ConnectionLimits } from "../core/context.ts";
import { ApiError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import type { Sink } from "../core/upload.ts";
import { messagesRequest } from "./request.ts";
import { RequestSplitter } from "./request_splitter.ts";

/* Turns the body that creates a batch of messages into the lines of a batch file. */

export const MAX_REQUESTS = 100_000;
/** Maximum bytes of a batch's body, the same as Anthropic's. */
const MAX_BODY_BYTES = 256 * 2 ** 20;
/** Maximum milliseconds per turn of the event loop: a chunk of many small requests would take too long for one turn. */
const LONGEST_TURN_MS = 8;

const customId = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "must have 1 to 64 letters, digits, _ and -");

export const batchRequests = z.object({
  requests: z.array(z.object({ custom_id: customId, params: messagesRequest })).min(1).max(MAX_REQUESTS),
}).openapi("MessageBatchRequest");

/**
 * The fields of a batch's request that are checked on arrival. Wrong `params` become an error in the results, as at
 * Anthropic.
 */
const entry = z.object({ custom_id: customId, params: z.looseObject({}) });

const encoder = new TextEncoder();

/**
 * Writes a line for each request of the body while the body arrives. `hold` counts the bytes of a request that has
 * not arrived completely. Returns the number of lines. Throws ApiError.
 */
export async function writeBatchLines(
  request: Request,
  limits: ConnectionLimits,
  sink: Sink,
  hold: BodyHold,
): Promise<number> {
  checkMediaType(request);
  const { bodyBytes, uploadBytes, bodyMs, bodyBytesPerSecond } = limits;
  const allowedMs = (received: number) => bodyMs + received / bodyBytesPerSecond * 1000;
  const splitter = new RequestSplitter({ requestBytes: bodyBytes, requests: MAX_REQUESTS });
  const places = new Map<string, number>();
  let turn = performance.now();
  let held = 0;
  for await (const chunk of bodyChunks(request, Math.min(MAX_BODY_BYTES, uploadBytes), allowedMs)) {
    const lines: Uint8Array[] = [];
    for (const bytes of splitter.add(chunk)) {
      lines.push(lineOf(bytes, places));
      if (performance.now() - turn < LONGEST_TURN_MS) continue;
      await new Promise((resolve) => setTimeout(resolve));
      turn = performance.now();
    }
    if (lines.length > 0) {
      hold.release();
      held = 0;
      await sink.write(concat(lines));
    }
    await hold.take(splitter.keptBytes - held);
    held = splitter.keptBytes;
  }
  splitter.end();
  return splitter.count;
}

/** Returns the next request as a line. `places`: positions of the earlier requests by custom_id. */
function lineOf(bytes: Uint8Array, places: Map<string, number>): Uint8Array {
  const at = places.size;
  let request: z.output<typeof entry>;
  try {
    request = check(entry, parseJson(bytes));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const param = `requests[${at}]${error.param === null ? "" : `.${error.param}`}`;
    throw new ApiError(error.status, error.code, `requests[${at}]: ${error.message}`, { param });
  }
  const { custom_id, params } = request;
  const first = places.get(custom_id);
  if (first !== undefined) {
    const message =
      `Invalid "requests[${at}].custom_id": "${custom_id}" is already used by requests[${first}]`;
    throw new ApiError(400, "duplicate_custom_id", message, { param: `requests[${at}].custom_id` });
  }
  places.set(custom_id, at);
  const line = { custom_id, method: "POST", url: "/v1/messages", body: params };
  return encoder.encode(`${JSON.stringify(line)}\n`);
}
