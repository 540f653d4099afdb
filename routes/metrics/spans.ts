import {
  type Attributes,
  context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import type { LogEntry } from "./request_record.ts";

/*
 * One span per request, under OpenTelemetry's names. Deno exports it if OTEL_DENO=true; otherwise nothing is recorded.
 * Deno's own spans come from Deno.serve, which is not used here.
 */

const tracer = trace.getTracer("compy");

const HEADERS = {
  get: (headers: Headers, name: string) => headers.get(name) ?? undefined,
  keys: (headers: Headers) => [...headers.keys()],
};

/** Starts the span of a request, as a child of the span that `traceparent` names, if any. */
export function startSpan(method: string, headers: Headers): Span {
  const attributes = { "http.request.method": method };
  const caller = headers.has("traceparent")
    ? propagation.extract(context.active(), headers, HEADERS)
    : undefined;
  return tracer.startSpan(method, { kind: SpanKind.SERVER, attributes }, caller);
}

export function endSpan(span: Span, entry: LogEntry): void {
  if (!span.isRecording()) return;
  const { method, route, status, error } = entry;
  span.updateName(route === "other" ? method : `${method} ${route}`);
  span.setAttributes(attributesOf(entry));
  if (status >= 500 || (error !== undefined && status < 400)) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

/** Returns the span's attributes; values that the request lacks are undefined. */
function attributesOf(entry: LogEntry): Attributes {
  return {
    "http.route": entry.route === "other" ? undefined : entry.route,
    "http.response.status_code": entry.status,
    "error.type": entry.error,
    "gen_ai.request.model": entry.model,
    "gen_ai.usage.input_tokens": entry.prompt_tokens,
    "gen_ai.usage.output_tokens": entry.completion_tokens,
    "gen_ai.response.finish_reasons": entry.finish && [...entry.finish],
    "compy.request_id": entry.id,
    "compy.key": entry.key,
    "compy.client_left": entry.left,
    "compy.cached_tokens": entry.cached_tokens,
    "compy.queue_ms": entry.queue_ms,
    "compy.prefill_ms": entry.prefill_ms,
    "compy.decode_ms": entry.decode_ms,
  };
}
