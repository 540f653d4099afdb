import { concat } from "@std/bytes/concat.js";
import type { ConnectionLimits } from "./context.ts";
import { ApiError, incompleteBody } from "./errors.ts";
import type { BodyHold } from "./body_budget.ts";
import { parseJson } from "./json.ts";

type BodyLimits = Pick<ConnectionLimits, "bodyBytes" | "bodyMs">;

/**
 * Returns the parsed JSON body of a request within the limits; throws ApiError. The media type must be JSON: a page of
 * another site can make a browser send plain text here, but not JSON.
 */
export async function readJson(request: Request, limits: BodyLimits, hold: BodyHold): Promise<unknown> {
  const mediaType = request.headers.get("content-type")?.split(";")[0].trim().toLowerCase() ?? "";
  if (mediaType !== "application/json") {
    const got = mediaType === "" ? "none" : JSON.stringify(mediaType.slice(0, 60));
    const message = `Unsupported content-type: must be application/json (got ${got})`;
    throw new ApiError(415, "unsupported_media_type", message);
  }
  const encoding = request.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new ApiError(
      415,
      "unsupported_media_type",
      `Unsupported content-encoding: must be identity (got ${JSON.stringify(encoding.slice(0, 60))}); ` +
        "send the body uncompressed",
    );
  }
  try {
    return parseJson(await readBody(request, limits, hold));
  } finally {
    hold.release();
  }
}

/** Counts the received bytes whatever content-length says: chunked bodies have none. */
async function readBody(
  request: Request,
  { bodyBytes, bodyMs }: BodyLimits,
  hold: BodyHold,
): Promise<Uint8Array> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > bodyBytes) throw tooLarge(bodyBytes, announced);
  if (!request.body) return new Uint8Array();
  await hold.take(announced);
  const reader = request.body.getReader();
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(tooSlow(bodyMs)), bodyMs);
  const read = () => Promise.race([reader.read(), late]);
  const parts: Uint8Array[] = [];
  let length = 0;
  try {
    for (let part = await read(); !part.done; part = await read()) {
      length += part.value.length;
      if (length > bodyBytes) throw tooLarge(bodyBytes);
      if (announced === 0) await hold.take(part.value.length);
      parts.push(part.value);
    }
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw incompleteBody();
  } finally {
    clearTimeout(timer);
    // Discard the rest of the body.
    reader.cancel().catch(() => {});
  }
  return concat(parts);
}

function tooLarge(bodyBytes: number, found?: number): ApiError {
  const message = `The request body must be at most ${bodyBytes} bytes (got ${
    found ?? "more"
  }); send less in one request`;
  return new ApiError(413, "request_too_large", message, { headers: { connection: "close" } });
}

function tooSlow(bodyMs: number): ApiError {
  const message = `The request body did not arrive within ${bodyMs / 1000} s; send it again, faster`;
  return new ApiError(408, "body_timeout", message, { headers: { connection: "close" } });
}
