import { type Engine, type Models, modelsOf } from "../engine/types.ts";
import { type AppOptions, createApp, ringOf } from "./app.ts";
import type { KeyRing } from "./keys.ts";
import { DEFAULT_LIMITS, type Lifecycle } from "./shared/context.ts";
import { isLoopback } from "./guard.ts";
import { freeDescriptors } from "./listener/descriptors.ts";
import { Listener } from "./listener/listener.ts";
import { settledWithin } from "./shared/settled.ts";

export interface ServeOptions extends Omit<AppOptions, "lifecycle" | "connections">, ListenOptions {}

/** Where an app listens, and how it stops. */
export interface ListenOptions {
  /** Default 127.0.0.1. Another machine's reach needs a key. */
  readonly host?: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** The path of a socket to listen at instead, for this user alone. */
  readonly unix?: string;
  /** Connections that may be open at once; default: what affordableConnections() says. */
  readonly maxConnections?: number;
  /** How long live requests may go on after the stop; default 10,000 ms. */
  readonly drainMs?: number;
  /** Stop on SIGTERM and SIGINT; a second signal cancels what still runs. Default true. */
  readonly signals?: boolean;
}

/** An app that is to listen, with what it was made of. */
export interface ListeningApp extends Pick<AppOptions, "apiKeys" | "limits" | "onError" | "batches"> {
  readonly app: ReturnType<typeof createApp>;
  readonly models: Models;
  readonly lifecycle: Lifecycle;
}

export interface HttpServer {
  /** Empty and 0 at a socket. */
  readonly hostname: string;
  readonly port: number;
  /** How many are open. */
  readonly connections: number;
  /** Resolves when the server has stopped; the models are drained then, not closed. */
  readonly finished: Promise<void>;
  /** Takes no new work, lets live requests end within `drainMs`, then cancels them. Stops once, however often called. */
  shutdown(drainMs?: number): Promise<void>;
}

/** After their cancellation, requests have this long to say goodbye. */
const GOODBYE_MS = 1000;
/**
 * One Ctrl-C can reach the process twice, from the terminal and through the task runner, within a millisecond on an idle
 * machine. No person is so fast.
 */
const SAME_PRESS_MS = 50;
/** File descriptors that connections leave free: for uploads, downloads, batches, their database and the model's file. */
const RESERVED_DESCRIPTORS = 64;
const MIN_CONNECTIONS = 16;
export const DEFAULT_CONNECTIONS = 1024;
export const MAX_CONNECTIONS = 65_536;

/** Listens and answers. Throws where the address would be open to others without a key. */
export function serveHttp(served: Models | Engine, options: ServeOptions = {}): HttpServer {
  const { host = "127.0.0.1", unix } = options;
  const apiKeys = ringOf(options.apiKeys);
  const lifecycle = { draining: false };
  // No web page reaches a socket, whatever name it gives it.
  const allowedHosts = options.allowedHosts ?? (unix === undefined && isLoopback(host) ? [] : "any");
  const models = modelsOf(served);
  const connections = () => http.connections;
  const app = createApp(models, { ...options, apiKeys, allowedHosts, lifecycle, connections });
  const http: HttpServer = listenHttp({ ...options, app, models, lifecycle, apiKeys }, options);
  return http;
}

/** Has an app listen. Throws where the address would be open to others without a key. */
export function listenHttp(
  { app, models, lifecycle, ...made }: ListeningApp,
  options: ListenOptions,
): HttpServer {
  const { host = "127.0.0.1", port = 0, unix, drainMs = 10_000, signals = true } = options;
  if (unix === undefined) checkReach(host, ringOf(made.apiKeys));
  const listener = new Listener({
    address: unix === undefined ? { hostname: host, port } : { unix },
    maxConnections: options.maxConnections ?? affordableConnections(),
    limits: { ...DEFAULT_LIMITS, ...made.limits },
    handle: (request, sent) => app.fetch(request, { sent }),
    onError: (error) => made.onError?.(error),
  });

  const stopped = Promise.withResolvers<void>();
  let stopping: Promise<void> | undefined;
  const drain = (ms: number) => models.drain(ms).catch((error) => made.onError?.(error));
  const shutdown = (ms = drainMs) => stopping ??= stop(ms);

  async function stop(ms: number): Promise<void> {
    lifecycle.draining = true;
    const batches = made.batches?.close().catch((error) => made.onError?.(error));
    await settledWithin(Promise.all([drain(ms), batches]), ms + GOODBYE_MS);
    await listener.stop(GOODBYE_MS);
    for (const name of watched) Deno.removeSignalListener(name, onSignal[name]);
    stopped.resolve();
  }

  const isRepeated = repeatedPress();
  const signalled = (name: "SIGTERM" | "SIGINT") => () => {
    if (isRepeated(name, performance.now())) return;
    if (stopping === undefined) shutdown();
    else drain(0);
  };
  const onSignal = { SIGTERM: signalled("SIGTERM"), SIGINT: signalled("SIGINT") };
  const watched = signals ? ["SIGTERM", "SIGINT"] as const : [];
  for (const name of watched) Deno.addSignalListener(name, onSignal[name]);
  const { hostname = "", port: boundPort = 0 } = listener.address ?? {};
  return {
    hostname,
    port: boundPort,
    get connections() {
      return listener.connections;
    },
    finished: stopped.promise,
    shutdown,
  };
}

/**
 * Tells of each signal whether it is the first one again: one press of Ctrl-C that arrives twice at once. Whatever comes
 * after that is a press of its own, whenever it comes.
 */
export function repeatedPress(): (name: string, now: number) => boolean {
  let first: { readonly name: string; readonly at: number } | undefined;
  let repeated = false;
  return (name, now) => {
    const again = !repeated && first?.name === name && now - first.at < SAME_PRESS_MS;
    first ??= { name, at: now };
    repeated ||= again;
    return again;
  };
}

/**
 * At most `wanted` connections, so many that file descriptors are left for all else. Throws where there are hardly any.
 * Call it while nothing else opens files.
 */
export function affordableConnections(wanted: number = DEFAULT_CONNECTIONS): number {
  const free = freeDescriptors(Deno.execPath(), wanted + RESERVED_DESCRIPTORS);
  const most = free - RESERVED_DESCRIPTORS;
  if (most >= Math.min(wanted, MIN_CONNECTIONS)) return most;
  throw new Error(
    `Cannot serve with ${free} free file descriptors: ${RESERVED_DESCRIPTORS} are kept for files, and at least ` +
      `${MIN_CONNECTIONS} for connections; raise the limit (ulimit -n)`,
  );
}

/** Throws where an address that other machines reach would be open to them without a key. */
export function checkReach(host: string, apiKeys: KeyRing): void {
  if (isLoopback(host) || !apiKeys.isEmpty) return;
  throw new Error(
    `Cannot listen on "${host}": an address that other machines reach needs an API key; ` +
      "give --api-keys, --api-key or COMPY_API_KEY, or listen on 127.0.0.1",
  );
}
