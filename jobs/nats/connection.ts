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
import { chunkBytes, WireError } from "./wire.ts";

/** Addresses and credentials of a NATS server. */
export interface NatsTarget {
  /** Servers as `host:port`, without credentials, so that they can be shown. */
  readonly servers: readonly string[];
  readonly tls: boolean;
  readonly user?: string;
  readonly password?: string;
  readonly token?: string;
  /** Path of a credentials file written by `nsc generate creds`. */
  readonly credsFile?: string;
}

/** A connection to a NATS server with JetStream. */
export interface Connection {
  readonly nats: NatsConnection;
  readonly manager: JetStreamManager;
  /** The servers' addresses, for messages. */
  readonly where: string;
  /** Maximum bytes that one message can carry besides its head. */
  readonly chunk: number;
}

const CONNECT_TIMEOUT_MS = 5000;
const REQUEST_TIMEOUT_MS = 3000;
const PING_INTERVAL_MS = 10_000;
/** Milliseconds between two attempts to reconnect. */
const RECONNECT_MS = 1000;
/** Maximum random delay in milliseconds, to spread the reconnects of many workers. */
const RECONNECT_JITTER_MS = 1000;

/**
 * Connects to NATS and checks that JetStream is enabled. Later losses of the connection are repaired in the background
 * and reported through `note`. Throws BatchError with advice.
 */
export async function openConnection(
  target: NatsTarget,
  name: string,
  note: (text: string) => void,
): Promise<Connection> {
  const where = target.servers.join(", ");
  const nats = await dial(target, name, where);
  try {
    const chunk = chunkBytes(nats.info!.max_payload);
    const manager = await jetstreamManager(nats, { timeout: REQUEST_TIMEOUT_MS });
    void watch(nats, where, note);
    return { nats, manager, where, chunk };
  } catch (error) {
    await nats.close();
    if (error instanceof WireError) throw unavailable(`The NATS server at ${where}: ${error.message}`, error);
    // The NATS library does not export this error's class.
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

/**
 * Ignores errors of a socket that the transport has already dropped. The transport removes its listeners before it
 * destroys a socket. A late error, such as a reset by the server, would then be uncaught and end the process. The loss
 * itself is reported by `status()` and `closed()`.
 */
function outliveLateSocketErrors(): void {
  globalThis.addEventListener("error", preventLateSocketErrors); // adding the same listener again has no effect
}

function preventLateSocketErrors(event: ErrorEvent): void {
  const { code, syscall } = (event.error ?? {}) as { code?: string; syscall?: string };
  if (syscall === "read" && (code === "ECONNRESET" || code === "ECONNABORTED")) event.preventDefault();
}

async function dial(target: NatsTarget, name: string, where: string): Promise<NatsConnection> {
  const { user, password, token, credsFile } = target;
  outliveLateSocketErrors();
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
      noAsyncTraces: true, // async traces cost as much time as a request
      maxReconnectAttempts: -1,
      reconnectTimeWait: RECONNECT_MS,
      reconnectJitter: RECONNECT_JITTER_MS,
      reconnectJitterTLS: RECONNECT_JITTER_MS,
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

/** Reports lost and restored connections until the connection is closed. */
async function watch(nats: NatsConnection, where: string, note: (text: string) => void): Promise<void> {
  for await (const status of nats.status()) {
    if (status.type === "disconnect") note(`The connection to NATS at ${where} is lost; trying again`);
    if (status.type === "reconnect") note(`Connected to NATS at ${status.server} again`);
    if (status.type === "error") note(`NATS: ${text(status.error)}`);
  }
}

/** Returns the error for a permanently closed connection, for example after its credentials were revoked. */
export function connectionEnded({ where }: Connection, reason: unknown): BatchError {
  const why = reason instanceof Error ? `: ${reason.message}` : "";
  return unavailable(
    `The connection to NATS at ${where} has ended${why}. The answers so far are kept; run the same command again`,
    reason,
  );
}

function unavailable(message: string, cause: unknown): BatchError {
  return new BatchError("queue_unavailable", message, true, { cause });
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
