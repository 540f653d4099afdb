import { OpenAPIHono } from "@hono/zod-openapi";
import { matchedRoutes } from "hono/route";
import type { Context } from "hono";
import type { Engine } from "../engine/types.ts";
import type { BatchService } from "../jobs/service.ts";
import { batchRoutes } from "./endpoints/batches.ts";
import { chatRoutes } from "./chat.ts";
import { completionRoutes } from "./completions.ts";
import {
  type AppContext,
  type ConnectionLimits,
  DEFAULT_LIMITS,
  type Env,
  type Lifecycle,
  onlyMethods,
} from "./shared/context.ts";
import { Metrics } from "./shared/counters.ts";
import {
  ApiError,
  errorResponse,
  isUnforeseen,
  requestId,
  shuttingDown,
  toApiError,
} from "./shared/errors.ts";
import { fileRoutes } from "./endpoints/files.ts";
import { checkHost, checkSite, KeyRing } from "./guard.ts";
import { healthRoutes } from "./endpoints/health.ts";
import { metricsRoutes } from "./endpoints/metrics.ts";
import { modelRoutes } from "./endpoints/models.ts";
import { tokenizeRoutes } from "./endpoints/tokenize.ts";

export interface AppOptions {
  /** With any, every route wants one of them. */
  readonly apiKeys?: readonly string[];
  /** Host names, without port, that requests may name besides this machine's own, or "any". Default none. */
  readonly allowedHosts?: readonly string[] | "any";
  readonly limits?: Partial<ConnectionLimits>;
  /** Told of every failure that nobody foresaw; clients learn nothing of it. */
  readonly onError?: (error: unknown) => void;
  /** Say `draining` there to refuse new work. */
  readonly lifecycle?: Lifecycle;
  /** Keeps files and batches; without it there are no such routes. */
  readonly batches?: BatchService;
}

/** The whole HTTP API. Throws where a key cannot be one. */
export function createApp(engine: Engine, options: AppOptions = {}): OpenAPIHono<Env> {
  const context: AppContext = {
    engine,
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    lifecycle: options.lifecycle ?? { draining: false },
    metrics: new Metrics(),
    report(error) {
      const answer = toApiError(error);
      if (isUnforeseen(error, answer)) options.onError?.(error);
      return answer;
    },
  };
  const app = new OpenAPIHono<Env>();
  guard(app, context, options);
  for (
    const routes of [chatRoutes, completionRoutes, modelRoutes, tokenizeRoutes, healthRoutes, metricsRoutes]
  ) {
    app.route("/", routes(context));
  }
  if (options.batches !== undefined) {
    app.route("/", fileRoutes(context, options.batches));
    app.route("/", batchRoutes(context, options.batches));
  }
  document(app, (options.apiKeys ?? []).length > 0);
  app.notFound((c) => {
    const message = `Unknown path ${JSON.stringify(c.req.path.slice(0, 100))}; /doc lists the known ones`;
    return errorResponse(new ApiError(404, "unknown_url", message));
  });
  app.onError((error) => errorResponse(context.report(error)));
  return app;
}

function guard(app: OpenAPIHono<Env>, { lifecycle, metrics }: AppContext, options: AppOptions): void {
  const keys = new KeyRing(options.apiKeys ?? []);
  const allowedHosts = options.allowedHosts ?? [];
  app.use("*", async (c, next) => {
    await next();
    c.res.headers.set("x-request-id", requestId());
    metrics.count(routeOf(c), c.res.status);
  });
  app.use("*", async (c, next) => {
    const host = c.req.header("host") ?? new URL(c.req.url).host;
    checkHost(host, allowedHosts);
    checkSite(c.req.method, c.req.raw.headers, host, allowedHosts);
    const salt = keys.admit(c.req.header("authorization"));
    c.set("cacheSalt", salt);
    c.set("owner", salt ?? "");
    if (lifecycle.draining && c.req.method !== "GET" && c.req.method !== "HEAD") throw shuttingDown();
    await next();
  });
}

/** The pattern that answered, or "other". */
function routeOf(c: Context<Env>): string {
  const pattern = matchedRoutes(c).map(({ path }) => path).find((path) => !path.endsWith("*"));
  return pattern?.replace(/\{.*\}$/, "") ?? "other";
}

function document(app: OpenAPIHono<Env>, withKeys: boolean): void {
  if (withKeys) {
    app.openAPIRegistry.registerComponent("securitySchemes", "key", { type: "http", scheme: "bearer" });
  }
  const config = {
    openapi: "3.1.0",
    info: { title: "compy", version: "1", description: "The OpenAI API over one GGUF model" },
    ...(withKeys ? { security: [{ key: [] }] } : {}),
  };
  app.get("/doc", (c) => c.json(app.getOpenAPI31Document(config)));
  app.all("/doc", onlyMethods("GET"));
}
