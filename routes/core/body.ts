import { finish, type Paced } from "../../engine/mod.ts";
import type { ConnectionLimits } from "./context.ts";
import { ApiError, incompleteBody, tooLarge } from "./errors.ts";
import type { BodyHold } from "./body_budget.ts";
import { parseJson } from "./json.ts";
import { paced } from "./paced.ts";

type BodyLimits = Pick<ConnectionLimits, "bodyBytes" | "bodyMs">;

/** Returns the number of bytes that the request announces; 0 if it announces none. */
export function announcedBytes({ headers }: Request): number {
  return Number(headers.get("content-length") ?? 0);
}

const JSON_TYPE = /^(?:(?:application|text)\/(?:[\w.-]+\+)?json|text\/plain)?$/;
/** The content type that curl sends with `--data`. */
const FORM_TYPE = "application/x-www-form-urlencoded";
const OPEN_BRACE = 0x7b;

/**
 * Returns the parsed JSON body of a request within the limits; throws ApiError. Programs may send JSON as plain text,
 * as curl's form data or without a type. Browsers let pages of other sites send these types, so `checkSite` must run
 * before. `mostBytes`: maximum bytes of a body with base64 images, if larger than `bodyBytes`. The caller releases `hold`.
 */
export async function readJson(
  request: Request,
  { bodyBytes, bodyMs }: BodyLimits,
  hold: BodyHold,
  mostBytes = bodyBytes,
): Promise<unknown> {
  checkMediaType(request);
  // A body beyond `bodyBytes` gets more time in proportion: the minimum speed stays the same.
  const allowedMs = (received: number) => bodyMs * Math.max(1, received / bodyBytes);
  const chunks = await Array.fromAsync(bodyChunks(request, mostBytes, allowedMs, hold));
  const bytes = await paced(() => finish(joined(chunks)));
  chunks.length = 0;
  if (mediaTypeOf(request) === FORM_TYPE && bytes.find((byte) => byte > 0x20) !== OPEN_BRACE) {
    throw notJson(request);
  }
  return await paced(() => parseJson(bytes, bodyBytes));
}

function* joined(chunks: readonly Uint8Array[]): Paced<Uint8Array> {
  const all = new Uint8Array(chunks.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
    yield;
  }
  return all;
}

/** Throws ApiError for a body that is not uncompressed JSON. */
export function checkMediaType(request: Request): void {
  const mediaType = mediaTypeOf(request);
  if (mediaType !== FORM_TYPE && !JSON_TYPE.test(mediaType)) throw notJson(request);
  const encoding = request.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new ApiError(
      415,
      "unsupported_media_type",
      `Unsupported content-encoding: must be identity (got ${JSON.stringify(encoding.slice(0, 60))}); ` +
        "send the body uncompressed",
    );
  }
}

function mediaTypeOf({ headers }: Request): string {
  return headers.get("content-type")?.split(";")[0].trim().toLowerCase() ?? "";
}

function notJson(request: Request): ApiError {
  const got = JSON.stringify(mediaTypeOf(request).slice(0, 60));
  const message = `Unsupported content-type: must be application/json (got ${got})`;
  return new ApiError(415, "unsupported_media_type", message);
}

/**
 * Yields a request's body as it arrives. `allowedMs` returns the time in which the whole body must arrive, given the
 * bytes so far. Counts received bytes, because content-length may be false, and chunked bodies have none. If the caller
 * keeps the whole body, the bytes are taken from the budget `hold`. Throws ApiError.
 */
export async function* bodyChunks(
  request: Request,
  bodyBytes: number,
  allowedMs: (received: number) => number,
  hold?: BodyHold,
): AsyncGenerator<Uint8Array> {
  const announced = announcedBytes(request);
  if (announced > bodyBytes) throw tooLarge(bodyBytes, announced);
  if (!request.body) return;
  await hold?.take(announced);
  const reader = request.body.getReader();
  const began = performance.now();
  let length = 0;
  try {
    for (;;) {
      const part = await inTime(reader.read(), began, allowedMs(length));
      if (part.done) return;
      length += part.value.length;
      if (length > bodyBytes) throw tooLarge(bodyBytes);
      if (announced === 0) await hold?.take(part.value.length);
      yield part.value;
    }
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw incompleteBody();
  } finally {
    // The rest of the body is discarded.
    reader.cancel().catch(() => {});
  }
}

/** Throws ApiError if the work has not ended `allowedMs` after `began`. */
async function inTime<T>(work: Promise<T>, began: number, allowedMs: number): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const leftMs = Math.max(0, began + allowedMs - performance.now());
  const timer = setTimeout(() => reject(tooSlow(Math.round(allowedMs))), leftMs);
  return await Promise.race([work, late]).finally(() => clearTimeout(timer));
}

function tooSlow(bodyMs: number): ApiError {
  const message = `The request body did not arrive within ${bodyMs / 1000} s; send it again, faster`;
  return new ApiError(408, "body_timeout", message, { headers: { connection: "close" } });
}
