import { getPath } from "hono/utils/url";

/** Format of a path prefix, which has no trailing slash. */
export const PATH_PREFIX = /^(?:\/[A-Za-z0-9._~-]+)+$/;
/** A path that no route matches. */
const NOWHERE = "/ ";

/**
 * Returns a function from a request to the path that routes match. It removes the server's prefix, and repeated and
 * trailing slashes. It adds a missing `/v1`, unless `patterns` (the routes) contain the path without it. Paths outside
 * the prefix match no route.
 */
export function routePath(patterns: readonly string[], prefix = ""): (request: Request) => string {
  const own = new Set(patterns.filter((pattern) => !pattern.startsWith("/v1/")));
  const versioned = new Set(patterns.filter((pattern) => pattern.startsWith("/v1/")).map(firstPart));
  return (request) => {
    const whole = getPath(request);
    if (!whole.startsWith(`${prefix}/`)) return NOWHERE;
    const path = whole.slice(prefix.length).replace(/\/{2,}/g, "/").replace(/(?<=.)\/$/, "");
    return !own.has(path) && versioned.has(firstPart(`/v1${path}`)) ? `/v1${path}` : path;
  };
}

/** Returns the first part of a pattern: `/v1/models/{id}` -> `models`. */
function firstPart(path: string): string {
  return path.split("/")[2];
}

/** Advice for paths of other servers' APIs, by path. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  "/v1/health": "GET /health says whether the server works",
  "/version": "GET /doc names the version",
  "/v1/version": "GET /doc names the version",
};

/** Returns the endpoint to use instead of a path of another server; undefined for other paths. */
export function insteadOf(path: string): string | undefined {
  return Object.hasOwn(ELSEWHERE, path) ? ELSEWHERE[path] : undefined;
}
