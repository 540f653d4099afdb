import type { Context } from "hono";
import type { Env } from "./context.ts";
import { type ApiError, OPENAI_ERRORS } from "./errors.ts";

/**
 * Turns the error into a response in the format of the path's API, and notes it in the request's record. The response
 * is created from the request's context, so that headers set there are sent too.
 */
export function errorResponse(error: ApiError, c?: Context<Env>): Response {
  c?.get("record")?.failed(error.code);
  const body = (c?.get("errors") ?? OPENAI_ERRORS).body(error, c?.get("requestId"));
  const response = Response.json(body, { status: error.status, headers: error.headers });
  return c ? c.newResponse(response.body, response) : response;
}
