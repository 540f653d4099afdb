import { z } from "@hono/zod-openapi";
import { ContextOverflow } from "../core/context_overflow.ts";
import type { ApiError, ErrorShape } from "../core/errors.ts";

const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  408: "timeout_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

function typeOf(status: number): string {
  return TYPES[status] ?? (status >= 500 ? "api_error" : "invalid_request_error");
}

function messageOf(error: ApiError): string {
  if (!(error instanceof ContextOverflow)) return error.message;
  const { tokens, most, advice } = error;
  return `prompt is too long: ${tokens} tokens > ${most} maximum${advice && `.${advice}`}`;
}

/** Anthropic's error format, plus our code and field name. Anthropic's clients read `details.error_code`. */
export const ANTHROPIC_ERRORS: ErrorShape = {
  name: "MessagesError",
  schema: z.object({
    type: z.literal("error"),
    error: z.object({
      type: z.enum([...new Set([...Object.values(TYPES), "invalid_request_error", "api_error"])]),
      message: z.string(),
      code: z.string().nullable(),
      param: z.string().nullable(),
      details: z.object({ error_code: z.string() }).catchall(z.number()),
    }),
    request_id: z.string().nullable(),
  }).openapi("MessagesError"),
  idHeader: "request-id",
  body(error: ApiError, requestId?: string) {
    const { status, code, param, details } = error;
    const message = messageOf(error);
    return {
      type: "error",
      error: { type: typeOf(status), message, code, param, details: { error_code: code, ...details } },
      request_id: requestId ?? null,
    };
  },
};
