import { OpenAPIHono } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { methodNotAllowed } from "hono/method-not-allowed";
import { requestId as requestIds } from "hono/request-id";
import { matchedRoutes } from "hono/route";
import { type Engine, type Models, modelsOf } from "../engine/types.ts";
import type { BatchService } from "../jobs/service.ts";
import { document } from "./document.ts";
import { BATCH_ENDPOINTS, ENDPOINTS } from "./endpoints.ts";
import { checkHost, checkSite, keyGuard } from "./guard.ts";
import { KeyRing } from "./keys.ts";
import { mountPage } from "./page.ts";
import {
  type AppContext,
  type ConnectionLimits,
  DEFAULT_LIMITS,
  type Env,
  type Lifecycle,
} from "./shared/context.ts";
import { Metrics } from "./shared/metrics.ts";
import { type LogEntry, RequestRecord } from "./shared/request_record.ts";
import { mount, shapeErrors } from "./shared/endpoint.ts";
import {
  ApiError,
  errorResponse,
  isUnforeseen,
  requestId,
  shuttingDown,
  toApiError,
} from "./shared/errors.ts";

export interface AppOptions {
  /** With any, every route wants one of them. */
  readonly apiKeys?: readonly string[] | KeyRing;
  /** Host names, without port, that requests may name besides this machine's own, or "any". Default none. */
  readonly allowedHosts?: readonly string[] | "any";
  readonly limits?: Partial<ConnectionLimits>;
  /** Told of every failure that nobody foresaw; clients learn nothing of it. */
  readonly onError?: (error: unknown) => void;
  /** Say `draining` there to refuse new work. */
  readonly lifecycle?: Lifecycle;
  /** How many connections are open; without it none. */
  readonly connections?: () => number;
  /** Default: figures of this app alone. */
  readonly metrics?: Metrics;
  /** Told of every request once it is answered. */
  readonly log?: (entry: LogEntry) => void;
  /** Keeps files and batches; without it there are no such routes. */
  readonly batches?: BatchService;
}

/** The whole HTTP API, over several models or one engine. Throws where a key cannot be one. */
export function createApp(served: Models | Engine, options: AppOptions = {}): OpenAPIHono<Env> {
  const context: AppContext = {
    models: modelsOf(served),
    batches: options.batches,
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    lifecycle: options.lifecycle ?? { draining: false },
    metrics: options.metrics ?? new Metrics(),
    report(error) {
      const answer = toApiError(error);
      if (isUnforeseen(error, answer)) options.onError?.(error);
      return answer;
    },
  };
  context.metrics.observe({
    models: () => context.models.list(),
    connections: options.connections ?? (() => 0),
  });
  const app = new OpenAPIHono<Env>();
  const endpoints = [...ENDPOINTS, ...(options.batches ? BATCH_ENDPOINTS : [])];
  for (const endpoint of endpoints) shapeErrors(app, endpoint);
  const ring = ringOf(options.apiKeys);
  guard(app, context, ring, options);
  for (const endpoint of endpoints) mount(app, context, endpoint);
  document(app, context.models, !ring.isEmpty);
  app.notFound((c) => {
    const path = JSON.stringify(c.req.path.slice(0, 100));
    const message = `Unknown path ${path}; GET /doc lists the known ones`;
    return errorResponse(new ApiError(404, "unknown_url", message), c);
  });
  app.onError((error, c) => errorResponse(context.report(error), c));
  return app;
}

/** Throws where a key cannot be one. */
export function ringOf(keys: AppOptions["apiKeys"] = []): KeyRing {
  return keys instanceof KeyRing ? keys : new KeyRing(keys);
}

/** What every request goes through before it reaches its endpoint. */
function guard(
  app: OpenAPIHono<Env>,
  { lifecycle, metrics }: AppContext,
  ring: KeyRing,
  options: AppOptions,
): void {
  const allowedHosts = options.allowedHosts ?? [];
  app.use(requestIds({ generator: requestId }));
  app.use(recording(metrics, options.log));
  app.use(async (c, next) => {
    const host = c.req.header("host") ?? new URL(c.req.url).host;
    checkHost(host, allowedHosts);
    checkSite(c.req.method, c.req.raw.headers, host, allowedHosts);
    await next();
  });
  // Before the key: the page asks for one.
  mountPage(app);
  app.use(keyGuard(ring));
  app.use(async (c, next) => {
    if (lifecycle.draining && c.req.method !== "GET" && c.req.method !== "HEAD") throw shuttingDown();
    await next();
  });
  app.use(methodNotAllowed({ app, onMethodNotAllowed: refuseMethod }));
}

/** Counts every request, and tells the log of it when its last byte was sent. */
function recording(metrics: Metrics, log: AppOptions["log"]): MiddlewareHandler<Env> {
  return async (c, next) => {
    const record = new RequestRecord(metrics);
    c.set("record", record);
    await next();
    const route = routeOf(c);
    const { status } = c.res;
    metrics.count(route, status);
    if (!log) return;
    const head = { id: c.get("requestId"), method: c.req.method, route, status };
    const end = (whole: boolean) => log(record.entry(head, !whole));
    if (c.env?.sent) c.env.sent.then(end);
    else end(true);
  };
}

function refuseMethod(c: Context<Env>, methods: readonly string[]): Response {
  const allow = methods.join(", ");
  const message = `Method ${c.req.method} is not allowed at ${c.req.path.slice(0, 100)}; use ${
    methods.join(" or ")
  }`;
  return errorResponse(new ApiError(405, "method_not_allowed", message, { headers: { allow } }), c);
}

/** The pattern that answered, or "other". */
function routeOf(c: Context<Env>): string {
  const pattern = matchedRoutes(c).map(({ path }) => path).find((path) => !path.endsWith("*"));
  return pattern?.replace(/\{.*\}$/, "") ?? "other";
}
