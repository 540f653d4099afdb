import type { MiddlewareHandler } from "hono";
import { bearerAuth } from "hono/bearer-auth";
import { createHash, timingSafeEqual } from "node:crypto";
import type { Env } from "./shared/context.ts";
import { ApiError } from "./shared/errors.ts";

/**
 * Refuses a Host header that names another machine: a web page whose name was rebound to this address must not
 * reach the server. `allowed`: further names without port, or "any". This machine's own names always pass.
 */
export function checkHost(host: string, allowed: readonly string[] | "any"): void {
  if (allowed === "any") return;
  const name = host.toLowerCase().replace(/:\d*$/, "");
  if (isLoopback(name) || allowed.some((other) => other.toLowerCase() === name)) return;
  const shown = JSON.stringify(name.slice(0, 100));
  const message =
    `The host name ${shown} is not served here; use localhost, or start the server with --allow-host and that name`;
  throw new ApiError(403, "host_not_allowed", message);
}

/**
 * Refuses what a page of another site makes a browser send, by any method that changes something: forms and plain
 * text need no preflight. What browsers alone send decides, `Origin` and `Sec-Fetch-Site`; requests without them come
 * from programs and pass. A page of this server passes, also through a proxy that changes the Host header where
 * `allowed` has the page's host name. hono's csrf looks at forms only, and refuses programs that send no Origin.
 */
export function checkSite(
  method: string,
  headers: Headers,
  host: string,
  allowed: readonly string[] | "any",
) {
  if (SAFE_METHODS.has(method)) return;
  const origin = headers.get("origin");
  const site = headers.get("sec-fetch-site")?.toLowerCase() ?? "none";
  const own = origin === null || isOwnOrigin(origin, host, allowed === "any" ? [] : allowed);
  if (own && (site === "none" || site === "same-origin")) return;
  const from = origin === null ? `Sec-Fetch-Site: ${site}` : `Origin: ${origin}`;
  const message =
    `A web page of another site sent this request (${from.slice(0, 100)}); only pages of this ` +
    "server may; where a proxy serves them under another name, allow that name with --allow-host";
  throw new ApiError(403, "cross_site_request", message);
}

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

/** Another port of this machine is another program, so the port counts. */
function isOwnOrigin(origin: string, host: string, allowed: readonly string[]): boolean {
  if (!URL.canParse(origin)) return false; // "null": a sandboxed page, or a file
  const page = new URL(origin);
  const own = URL.canParse(`${page.protocol}//${host}`) && new URL(`${page.protocol}//${host}`).host;
  return page.host !== "" && page.host === own ||
    allowed.some((name) => name.toLowerCase() === page.hostname);
}

/** Whether a host name or address can only mean this machine. */
export function isLoopback(name: string): boolean {
  return name === "localhost" || name.endsWith(".localhost") || name === "::1" || name === "[::1]" ||
    /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

/**
 * Wants one of the keys as `Authorization: Bearer KEY`, if there are any, and says whose request it is. Throws where a key
 * could not be sent so.
 */
export function keyGuard(keys: readonly string[]): MiddlewareHandler<Env> {
  const ring = new KeyRing(keys);
  if (keys.length === 0) {
    return async (c, next) => {
      c.set("owner", "");
      await next();
    };
  }
  return bearerAuth({
    verifyToken(key, c) {
      const salt = ring.admit(key);
      c.set("cacheSalt", salt || undefined);
      c.set("owner", salt ?? "");
      return salt !== undefined;
    },
    noAuthenticationHeader: { message: refuseKey },
    invalidAuthenticationHeader: { message: refuseKey },
    invalidToken: { message: refuseKey },
  });
}

function refuseKey(): never {
  const message = "Missing or wrong API key; send it as `Authorization: Bearer KEY`";
  throw new ApiError(401, "invalid_api_key", message, { headers: { "www-authenticate": "Bearer" } });
}

/** The keys of a server, kept as digests of equal length so that comparing takes the same time for any key. */
class KeyRing {
  readonly #digests: readonly Uint8Array[];

  constructor(keys: readonly string[]) {
    if (!keys.every((key) => /^[A-Za-z0-9._~+/-]{1,512}=*$/.test(key))) {
      throw new Error(
        "Cannot use API key: must be 1 to 512 letters, digits and ._~+/- (then any =), as a Bearer header carries them",
      );
    }
    this.#digests = keys.map(digest);
  }

  /**
   * The salt that keeps the prompt caches of several keys apart, so that no one learns from timing what another sent: empty
   * where there is one key only, undefined for a wrong one.
   */
  admit(key: string): string | undefined {
    const given = digest(key);
    let found: Uint8Array | undefined;
    for (const known of this.#digests) if (timingSafeEqual(known, given)) found = known;
    if (!found) return undefined;
    return this.#digests.length > 1 ? found.toHex().slice(0, 16) : "";
  }
}

function digest(key: string): Uint8Array {
  return createHash("sha256").update(key).digest();
}
