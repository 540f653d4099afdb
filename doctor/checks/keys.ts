import type { Finding, Wanted } from "../types.ts";

/** Checks that a server that others can reach has a key, without which it does not start. */
export function checkKeys(
  _world: unknown,
  { host, unix, hasKeys }: Pick<Wanted, "host" | "unix" | "hasKeys">,
): Finding {
  if (hasKeys) return { status: "ok", found: "required for every request" };
  if (unix !== undefined) return { status: "ok", found: "none: only this user reaches the socket" };
  if (isLoopback(host)) return { status: "ok", found: "none: only this machine reaches the server" };
  return {
    status: "wrong",
    found: `none, and other machines reach ${host}`,
    advice: "set COMPY_API_KEY, or name a file of keys with --api-keys",
  };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || /^127\./.test(host) || /^\[?::1\]?$/.test(host);
}
