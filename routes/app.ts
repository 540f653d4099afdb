import { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { methodNotAllowed } from "hono/method-not-allowed";
import { requestId as requestIds } from "hono/request-id";
import { secureHeaders } from "hono/secure-headers";
import { type Engine, type Models, modelsOf } from "../engine/mod.ts";
import { ResponseStore } from "../jobs/service/response_store.ts";
import type { BatchService } from "../jobs/service/service.ts";
import { document } from "./document.ts";
import { BATCH_ENDPOINTS, ENDPOINTS } from "./endpoints.ts";
import { allowOrigins, checkHost, checkSite, keyGuard } from "./access/guard.ts";
import { KeyRing } from "./access/keys.ts";
import { mountPage } from "./page.ts";
import { insteadOf, routePath } from "./access/paths.ts";
import { recording } from "./metrics/recording.ts";
import {
  type AppContext,
  type ConnectionLimits,
  DEFAULT_LIMITS,
  type Env,
  type Lifecycle,
  type ModelPulls,
} from "./core/context.ts";
import { BodyBudget } from "./core/body_budget.ts";
import { Metrics } from "./metrics/metrics.ts";
import type { LogEntry } from "./metrics/request_record.ts";
import { type Endpoint, mount, shapeErrors } from "./core/endpoint.ts";
import type { ParameterOptions } from "./core/parameters.ts";
import { ApiError, isUnforeseen, requestId, toApiError } from "./core/errors.ts";
import { OLLAMA_ERRORS } from "./ollama/errors.ts";
import type { FetchImage } from "./generation/fetch_image.ts";
import { errorResponse } from "./core/error_response.ts";

export interface AppOptions extends ParameterOptions {
  /** API keys. If there are any, every route needs one. */
  readonly apiKeys?: readonly string[] | KeyRing;
  /** Host names, without port, that requests may name besides this machine's own, or "any". Default none. */
  readonly allowedHosts?: readonly string[] | "any";
  /** Origins, such as `https://app.example`, whose pages may use the API from a browser. Default none. */
  readonly corsOrigins?: readonly string[];
  /** Whether `/health` needs no key. */
  readonly openHealth?: boolean;
  /** Prefix of every path, such as `/llm` (PATH_PREFIX). */
  readonly pathPrefix?: string;
  readonly limits?: Partial<ConnectionLimits>;
  /** Receives every unexpected failure. Clients see no details of the failure. */
  readonly onError?: (error: unknown) => void;
  /** State of the server: setting its `draining` makes the app refuse new work. */
  readonly lifecycle?: Lifecycle;
  /** Returns the number of open connections; by default 0. */
  readonly connections?: () => number;
  /** Metrics to update; by default those of this app alone. */
  readonly metrics?: Metrics;
  /** Receives a log entry for every answered request. */
  readonly log?: (entry: LogEntry) => void;
  /** Stores files and batches. Without it, their routes do not exist. */
  readonly batches?: BatchService;
  /** Stores the answers of /v1/responses; by default with the batches, or in memory without them. */
  readonly responses?: ResponseStore;
  /** Downloads models for requests. Without it, `/api/pull` refuses them. */
  readonly pulls?: ModelPulls;
  /** Fetches images at https URLs. Without it, such URLs are refused. */
  readonly fetchImage?: FetchImage;
}

/** Builds the whole HTTP API over several models or one engine. Throws for an invalid key. */
export function createApp(served: Models | Engine, options: AppOptions = {}): OpenAPIHono<Env> {
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const context: AppContext = {
    models: modelsOf(served),
    batches: options.batches,
    responses: options.responses ?? options.batches?.responses ??
      ResponseStore.inMemory({ report: options.onError }),
    pulls: options.pulls,
    fetchImage: options.fetchImage,
    limits,
    bodies: new BodyBudget(limits.bodiesBytes, limits.bodiesMs),
    imageBodies: new BodyBudget(limits.imageBodiesBytes, limits.bodyMs),
    lifecycle: options.lifecycle ?? { draining: false },
    metrics: options.metrics ?? new Metrics(),
    strictParameters: options.strictParameters,
    warn: options.warn,
    report(error) {
      const answer = toApiError(error);
      if (isUnforeseen(error, answer)) options.onError?.(error);
      return answer;
    },
  };
  context.metrics.observe({
    models: () => context.models.list(),
    connections: options.connections ?? (() => 0),
    batches: options.batches && (() => options.batches!.figures()),
  });
  const { pathPrefix } = options;
  const endpoints = [...ENDPOINTS, ...(options.batches ? BATCH_ENDPOINTS : [])];
  const app = new OpenAPIHono<Env>({
    getPath: routePath(endpoints.map(({ pattern }) => pattern), pathPrefix),
  });
  for (const paths of [OLLAMA_PATHS, ...endpoints]) shapeErrors(app, paths);
  const ring = ringOf(options.apiKeys);
  guard(app, context, ring, { ...options, endpoints });
  for (const endpoint of endpoints) mount(app, context, endpoint);
  document(app, context.models, { withKeys: !ring.isEmpty, openHealth: options.openHealth, pathPrefix });
  const checkMethod = methodNotAllowed({ app, onMethodNotAllowed: refuseMethod });
  app.notFound(async (c) => {
    c.res = c.body(null, 404);
    await checkMethod(c, () => Promise.resolve());
    if (c.res.status !== 404) return c.res;
    const advice = insteadOf(c.req.path) ?? `GET ${pathPrefix ?? ""}/doc lists the known ones`;
    const message = `Unknown path ${askedPath(c)}; ${advice}`;
    return c.res = errorResponse(new ApiError(404, "unknown_url", message), c);
  });
  app.onError((error, c) => errorResponse(context.report(error), c));
  return app;
}

/** Returns the keys as a ring. Throws for an invalid key. */
export function ringOf(keys: AppOptions["apiKeys"] = []): KeyRing {
  return keys instanceof KeyRing ? keys : new KeyRing(keys);
}

/** Adds the checks that every request passes before its endpoint. */
function guard(
  app: OpenAPIHono<Env>,
  { metrics }: AppContext,
  ring: KeyRing,
  options: AppOptions & { readonly endpoints: readonly Endpoint[] },
): void {
  const { allowedHosts = [], corsOrigins = [], pathPrefix } = options;
  const loading = new Set(options.endpoints.filter(({ loads }) => loads).map(({ pattern }) => pattern));
  app.use(requestIds({ generator: requestId }));
  app.use(recording(metrics, options.log));
  app.use(async (c, next) => {
    const host = c.req.header("host") ?? new URL(c.req.url).host;
    checkHost(host, allowedHosts);
    const { method, path } = c.req;
    const changes = READS.has(method) ? loading.has(path) : method !== "OPTIONS";
    if (changes) checkSite(c.req.raw.headers, host, { allowedHosts, corsOrigins });
    // The page uses relative paths, so its address must end with a slash.
    if (pathPrefix !== undefined && new URL(c.req.url).pathname === pathPrefix) {
      return c.redirect(`${pathPrefix}/`, 308);
    }
    await next();
  });
  if (corsOrigins.length > 0) app.use(allowOrigins(corsOrigins));
  // The page is mounted before the key check, because it asks for the key itself.
  mountPage(app);
  app.use(API_HEADERS);
  app.use(keyGuard(ring, (c) => options.openHealth === true && c.req.path === "/health"));
}

/** Error format of Ollama's paths, including unknown ones: Ollama's clients read an error's text. */
const OLLAMA_PATHS = { pattern: "/api/*", errors: OLLAMA_ERRORS };

const READS = new Set(["GET", "HEAD"]);

/** Headers of API answers: browsers must not guess an answer's type, and must not embed it in a page. */
const API_HEADERS = secureHeaders({
  contentSecurityPolicy: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
  crossOriginResourcePolicy: false,
  xFrameOptions: "DENY",
  strictTransportSecurity: false,
  xDownloadOptions: false,
  xDnsPrefetchControl: false,
  xPermittedCrossDomainPolicies: false,
  xXssProtection: false,
  originAgentCluster: false,
});

/** Returns the path with its prefix, as the client wrote it, for messages. */
function askedPath(c: Context<Env>): string {
  return JSON.stringify(new URL(c.req.url).pathname.slice(0, 100));
}

/** Answers OPTIONS with the path's methods, and refuses methods that the path does not support. */
function refuseMethod(c: Context<Env>, methods: readonly string[]): Response {
  const allow = [...methods, "OPTIONS"].join(", ");
  if (c.req.method === "OPTIONS") return c.body(null, 204, { allow });
  const message = `Method ${c.req.method} is not allowed at ${askedPath(c)}; use ${methods.join(" or ")}`;
  return errorResponse(new ApiError(405, "method_not_allowed", message, { headers: { allow } }), c);
}
