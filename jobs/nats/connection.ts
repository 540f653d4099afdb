import {
  AuthorizationError,
  connect,
  credsAuthenticator,
  type NatsConnection,
} from "@nats-io/transport-node";
import {
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamManager,
  jetstreamManager,
} from "@nats-io/jetstream";
import { BatchError } from "../errors.ts";

/** How to reach a NATS server. */
export interface NatsTarget {
  /** `host:port`, without credentials, so that it can be shown. */
  readonly servers: readonly string[];
  readonly tls: boolean;
  readonly user?: string;
  readonly password?: string;
  readonly token?: string;
  /** A file as `nsc generate creds` writes it. */
  readonly credsFile?: string;
}

/** A connection to a server that has JetStream. */
export interface Connection {
  readonly nats: NatsConnection;
  readonly manager: JetStreamManager;
  /** The servers, in words. */
  readonly where: string;
}

const DEFAULT_PORT = 4222;
const CONNECT_TIMEOUT_MS = 5000;
const REQUEST_TIMEOUT_MS = 3000;
const PING_INTERVAL_MS = 10_000;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 10_000;

/**
 * Reads `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT]`, several with commas between them, and the credentials that the
 * environment has for it, by the names that NATS's own tools use. Throws Error for an invalid URL.
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

/**
 * Connects, and sees that JetStream is there; later losses are mended in the background, with growing pauses. `note`
 * hears of them. Throws BatchError that says what to do.
 */
export async function openConnection(
  target: NatsTarget,
  name: string,
  note: (text: string) => void,
): Promise<Connection> {
  const where = target.servers.join(", ");
  const loss: Loss = { at: undefined };
  const nats = await dial(target, name, where, loss);
  try {
    const manager = await jetstreamManager(nats, { timeout: REQUEST_TIMEOUT_MS });
    void watch(nats, where, note, loss);
    return { nats, manager, where };
  } catch (error) {
    await nats.close();
    // The library does not export this error's class.
    const absent = (error as Error).name === "JetStreamNotEnabled" ||
      (error instanceof JetStreamApiError && error.code === JetStreamApiCodes.JetStreamNotEnabledForAccount);
    if (!absent) {
      throw unavailable(`The NATS server at ${where} does not answer about JetStream: ${text(error)}`, error);
    }
    throw unavailable(
      `The NATS server at ${where} has no JetStream for this account; start it with "nats-server -js", or enable ` +
        `"jetstream" in its configuration`,
      error,
    );
  }
}

/** When the connection was lost; undefined while it stands. */
interface Loss {
  at: number | undefined;
}

async function dial(target: NatsTarget, name: string, where: string, loss: Loss): Promise<NatsConnection> {
  const { user, password, token, credsFile } = target;
  // Many workers must not come back in step.
  const jitter = 0.75 + Math.random() / 2;
  try {
    return await connect({
      servers: [...target.servers],
      name,
      user,
      pass: password,
      token,
      ...(target.tls ? { tls: {} } : {}),
      ...(credsFile === undefined ? {} : { authenticator: credsAuthenticator(await readCreds(credsFile)) }),
      timeout: CONNECT_TIMEOUT_MS,
      pingInterval: PING_INTERVAL_MS,
      maxReconnectAttempts: -1,
      // Asked more often than it dials, so the pause follows from the time and not from the number of calls.
      reconnectDelayHandler: () => {
        const away = performance.now() - (loss.at ?? performance.now());
        return jitter * Math.min(Math.max(away / 2, FIRST_DELAY_MS), LONGEST_DELAY_MS);
      },
    });
  } catch (error) {
    if (error instanceof BatchError) throw error;
    if (error instanceof AuthorizationError || /authorization/i.test(text(error))) {
      throw unavailable(
        `The NATS server at ${where} refuses these credentials; give others in the URL (nats://USER:PASSWORD@HOST), ` +
          "with --nats-creds FILE, or in NATS_USER and NATS_PASSWORD, NATS_TOKEN or NATS_CREDS",
        error,
      );
    }
    throw unavailable(
      `Cannot reach a NATS server at ${where}: ${
        text(error)
      }. Start one with "nats-server -js" (Debian: apt install ` +
        "nats-server), or give the address of another with --nats",
      error,
    );
  }
}

async function readCreds(path: string): Promise<Uint8Array> {
  try {
    return await Deno.readFile(path);
  } catch (error) {
    throw unavailable(`Cannot read the NATS credentials "${path}": ${text(error)}`, error);
  }
}

/** Tells of losses until the connection is closed. */
async function watch(nats: NatsConnection, where: string, note: (text: string) => void, loss: Loss) {
  for await (const status of nats.status()) {
    if (status.type === "disconnect") {
      loss.at = performance.now();
      note(`The connection to NATS at ${where} is lost; trying again`);
    }
    if (status.type === "reconnect") {
      loss.at = undefined;
      note(`Connected to NATS at ${status.server} again`);
    }
    if (status.type === "error") note(`NATS: ${text(status.error)}`);
  }
}

/** The connection is closed and does not come back: the credentials are not taken any more, for one. */
export function connectionEnded({ where }: Connection, reason: unknown): BatchError {
  const why = reason instanceof Error ? `: ${reason.message}` : "";
  return unavailable(
    `The connection to NATS at ${where} has ended${why}. What was answered so far is kept; run the same command again`,
    reason,
  );
}

function unavailable(message: string, cause: unknown): BatchError {
  return new BatchError("queue_unavailable", message, true, { cause });
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
