import type { Context, MiddlewareHandler } from "hono";
import { bearerAuth } from "hono/bearer-auth";
import { some } from "hono/combine";
import { cors } from "hono/cors";
import type { KeyRing } from "./keys.ts";
import { anyone, type Caller } from "./caller.ts";
import type { Env } from "../core/context.ts";
import { ApiError } from "../core/errors.ts";
import { WARNING_HEADER } from "../core/parameters.ts";

/**
 * Throws ApiError for a Host header that names another machine: a web page whose name was rebound to this address must
 * not reach the server (DNS rebinding). `allowed`: further names without port, or "any". The names of this machine
 * are always allowed.
 */
export function checkHost(host: string, allowed: readonly string[] | "any"): void {
  if (allowed === "any") return;
  const name = host.toLowerCase().replace(/:\d*$/, "");
  if (isLoopback(name) || allowed.some((other) => other.toLowerCase() === name)) return;
  const shown = JSON.stringify(name.slice(0, 100));
  const message = [
    `The host name ${shown} is not served here; use localhost, or add that name to `,
    { allowedHosts: undefined },
  ];
  throw new ApiError(403, "host_not_allowed", message);
}

/**
 * Throws ApiError for a changing request that a browser sent for a page of another site: forms, plain text and images
 * need no preflight. The check reads `Origin` and `Sec-Fetch-Site`; programs send neither, so their requests pass.
 *
 * Pages of this server pass, and pages of an origin in `corsOrigins`. Behind a proxy that changes the Host header, a
 * page passes if `allowedHosts` has its host name. Hono's csrf is not used: it checks forms only, and refuses programs
 * without an Origin.
 */
export function checkSite(headers: Headers, host: string, { allowedHosts, corsOrigins }: Sites): void {
  const origin = headers.get("origin");
  if (origin !== null && corsOrigins.includes(origin)) return;
  const site = headers.get("sec-fetch-site")?.toLowerCase() ?? "none";
  const own = origin === null || isOwnOrigin(origin, host, allowedHosts === "any" ? [] : allowedHosts);
  if (own && (site === "none" || site === "same-origin")) return;
  const from = origin === null ? `Sec-Fetch-Site: ${site}` : `Origin: ${origin}`;
  const message = [
    `A web page of another site sent this request (${from.slice(0, 100)}); `,
    "only pages of this server may, and pages of origins in ",
    { corsOrigins: undefined },
    "; where a proxy serves them under another name, add that name to ",
    { allowedHosts: undefined },
  ];
  throw new ApiError(403, "cross_site_request", message);
}

/** The sites whose pages may send requests. */
interface Sites {
  readonly allowedHosts: readonly string[] | "any";
  readonly corsOrigins: readonly string[];
}

/**
 * Middleware that lets pages of these origins read answers, and answers their preflights, which carry no key. Other
 * origins get no CORS headers.
 */
export function allowOrigins(origins: readonly string[]): MiddlewareHandler<Env> {
  const allow = cors({
    origin: [...origins],
    allowMethods: ["GET", "POST", "DELETE"],
    exposeHeaders: ["x-request-id", "retry-after", WARNING_HEADER],
    maxAge: 600,
  });
  return async (c, next) => {
    const isForeign = !origins.includes(c.req.header("origin") ?? "");
    return c.req.method === "OPTIONS" && isForeign ? await next() : await allow(c, next);
  };
}

/** Returns whether the origin is this server's. Another port is another program. */
function isOwnOrigin(origin: string, host: string, allowed: readonly string[]): boolean {
  if (!URL.canParse(origin)) return false; // "null" is the origin of a sandboxed page, or a file
  const page = new URL(origin);
  const own = URL.canParse(`${page.protocol}//${host}`) && new URL(`${page.protocol}//${host}`).host;
  return page.host !== "" && page.host === own ||
    allowed.some((name) => name.toLowerCase() === page.hostname);
}

/** Returns true if a host name or address can only mean this machine. */
export function isLoopback(name: string): boolean {
  return name === "localhost" || name.endsWith(".localhost") || name === "::1" || name === "[::1]" ||
    /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

/**
 * Requires one of the keys, if there are any, as `Authorization: Bearer KEY` or `x-api-key: KEY`, and sets the
 * request's caller. Paths that are open need no key.
 */
export function keyGuard(ring: KeyRing, isOpen: (c: Context<Env>) => boolean): MiddlewareHandler<Env> {
  const everyone = anyone();
  const letIn: MiddlewareHandler<Env> = async (c, next) => {
    welcome(c, everyone);
    await next();
  };
  if (ring.isEmpty) return letIn;
  const options = {
    verifyToken(key: string, c: Context<Env>) {
      const caller = ring.admit(key);
      if (caller) welcome(c, caller);
      return caller !== undefined;
    },
    noAuthenticationHeader: { message: refuseKey },
    invalidAuthenticationHeader: { message: refuseKey },
    invalidToken: { message: refuseKey },
  };
  const keyed = some(bearerAuth(options), bearerAuth({ ...options, headerName: "x-api-key", prefix: "" }));
  return (c, next) => isOpen(c) ? letIn(c, next) : keyed(c, () => (checkScope(c), next()));
}

/** Refuses paths that the key may not use, whether they exist or not. */
function checkScope(c: Context<Env>): void {
  const { name, onlyPath } = c.get("caller");
  if (onlyPath === undefined || onlyPath === c.req.path) return;
  const message = `The API key "${name}" may only read ${onlyPath}; send another key`;
  throw new ApiError(403, "key_not_allowed", message);
}

function welcome(c: Context<Env>, caller: Caller): void {
  c.set("caller", caller);
  c.get("record").caller = caller;
}

function refuseKey(): never {
  const message = "Missing or wrong API key; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
  throw new ApiError(401, "invalid_api_key", message, { headers: { "www-authenticate": "Bearer" } });
}
