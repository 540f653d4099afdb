import type { Context, MiddlewareHandler } from "hono";
import { matchedRoutes } from "hono/route";
import type { Env } from "../core/context.ts";
import { endSpan, startSpan } from "./spans.ts";
import type { Metrics } from "./metrics.ts";
import { type LogEntry, RequestRecord } from "./request_record.ts";

/** Records every request. After its last byte is sent, writes the log entry and ends the span. */
export function recording(
  metrics: Metrics,
  log: ((entry: LogEntry) => void) | undefined,
): MiddlewareHandler<Env> {
  return async (c, next) => {
    const record = new RequestRecord(metrics);
    const span = startSpan(c.req.method, c.req.raw.headers);
    c.set("record", record);
    await next();
    const route = routeOf(c);
    const { status } = c.res;
    metrics.count(route, status);
    if (!log && !span.isRecording()) return;
    const head = { id: c.get("requestId"), method: c.req.method, route, status };
    const end = (whole: boolean) => {
      const entry = record.entry(head, !whole);
      log?.(entry);
      endSpan(span, entry);
    };
    if (c.env?.sent) c.env.sent.then(end);
    else end(true);
  };
}

/** Returns the pattern of the matched route, or "other". */
function routeOf(c: Context<Env>): string {
  const pattern = matchedRoutes(c).map(({ path }) => path).find((path) => !path.endsWith("*"));
  return pattern?.replace(/\{.*\}$/, "") ?? "other";
}
