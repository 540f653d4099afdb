import type { NatsTarget } from "../../lib/batch/workers.ts";

const DEFAULT_PORT = 4222;

/**
 * Reads one or more URLs `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT]`, separated by commas. Takes credentials
 * from the environment, under the variable names of NATS's own tools. Throws Error for an invalid URL.
 */
export function natsTarget(
  urls: string,
  credsFile: string | undefined,
  env: (name: string) => string | undefined,
): NatsTarget {
  const parsed = urls.split(",").map((text) => parseUrl(text.trim()));
  const [{ user, password }] = parsed;
  const [envUser, envPassword, envToken] = ["NATS_USER", "NATS_PASSWORD", "NATS_TOKEN"].map((name) =>
    env(name) || undefined
  );
  const creds = credsFile ?? (user === undefined ? env("NATS_CREDS") || undefined : undefined);
  const common = { servers: parsed.map(({ server }) => server), tls: parsed.some(({ tls }) => tls) };
  if (creds !== undefined) return { ...common, credsFile: creds };
  if (user !== undefined) {
    return password === undefined ? { ...common, token: user } : { ...common, user, password };
  }
  return {
    ...common,
    user: envUser,
    password: envPassword,
    token: envUser === undefined ? envToken : undefined,
  };
}

function parseUrl(text: string): { server: string; tls: boolean; user?: string; password?: string } {
  const url = URL.parse(text.includes("://") ? text : `nats://${text}`);
  if (url === null) throw invalid(text, "it is not a URL");
  const { protocol, hostname, port, pathname, search, hash, username, password } = url;
  if (!["nats:", "tls:"].includes(protocol)) {
    throw invalid(text, `the scheme "${protocol.slice(0, -1)}" is not known`);
  }
  if (hostname === "" || !["", "/"].includes(pathname) || search !== "" || hash !== "") {
    throw invalid(text, "it must have a host and nothing but a port after it");
  }
  const decoded = (part: string) => {
    try {
      return part === "" ? undefined : decodeURIComponent(part);
    } catch {
      throw invalid(text, "its credentials have a % that is not followed by two hex digits");
    }
  };
  return {
    server: `${hostname}:${port || DEFAULT_PORT}`,
    tls: protocol === "tls:",
    user: decoded(username),
    password: decoded(password),
  };
}

function invalid(url: string, why: string): Error {
  const allowed = "nats://HOST or nats://HOST:PORT (or tls://…)";
  return new Error(`Invalid NATS server "${hideSecrets(url)}": ${why}; must be ${allowed}`);
}

function hideSecrets(text: string): string {
  return text.replace(/[^/@]*@/, "…@");
}
