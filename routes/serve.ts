import { type Engine, type Models, modelsOf, WordedError } from "../engine/mod.ts";
import { type AppOptions, createApp, ringOf } from "./app.ts";
import type { KeyRing } from "./access/keys.ts";
import { DEFAULT_LIMITS, type Lifecycle } from "./core/context.ts";
import { isLoopback } from "./access/guard.ts";
import { freeDescriptors } from "./listener/descriptors.ts";
import { Listener } from "./listener/listener.ts";
import { settledWithin } from "./core/settled.ts";

export interface ServeOptions extends Omit<AppOptions, "lifecycle" | "connections">, ListenOptions {}

/** Options for the address of an app and for its shutdown. */
export interface ListenOptions {
  /** Address to listen at. Default 127.0.0.1. Addresses that other machines can reach require a key. */
  readonly host?: string;
  /** Port to listen at. Default 0: any free port. */
  readonly port?: number;
  /** Path of a Unix socket to listen at instead of a port; only this user may use it. */
  readonly unix?: string;
  /** Maximum open connections; default: the result of affordableConnections(). */
  readonly maxConnections?: number;
  /** Milliseconds for which running requests may continue after a stop; default 10,000. */
  readonly drainMs?: number;
  /** Whether to stop on SIGTERM and SIGINT; a second signal cancels running requests. Default true. */
  readonly signals?: boolean;
}

/** An app that is about to listen, and the options with which it was built. */
export interface ListeningApp extends Pick<AppOptions, "apiKeys" | "limits" | "onError" | "batches"> {
  readonly app: ReturnType<typeof createApp>;
  readonly models: Models;
  readonly lifecycle: Lifecycle;
}

export interface HttpServer {
  /** Host name of the server, and its port; "" and 0 for a Unix socket. */
  readonly hostname: string;
  readonly port: number;
  /** Number of open connections. */
  readonly connections: number;
  /** Resolves when the server has stopped. The models are then still open, but answer no more requests. */
  readonly finished: Promise<void>;
  /**
   * Stops the server: takes no new work, lets running requests end within `drainMs`, then cancels them. Repeated calls
   * have no further effect.
   */
  shutdown(drainMs?: number): Promise<void>;
}

/** Milliseconds in which cancelled requests can send their last events. */
const GOODBYE_MS = 1000;
/**
 * Milliseconds within which two signals count as one Ctrl-C, which may arrive from the terminal and from the task
 * runner.
 */
const SAME_PRESS_MS = 50;
/** Number of file descriptors reserved for uploads, downloads, batches, their database and the model's file. */
const RESERVED_DESCRIPTORS = 64;
const MIN_CONNECTIONS = 16;
export const DEFAULT_CONNECTIONS = 1024;
export const MAX_CONNECTIONS = 65_536;

/** Starts the server. Throws if other machines could reach the address without a key. */
export function serveHttp(served: Models | Engine, options: ServeOptions = {}): HttpServer {
  const { host = "127.0.0.1", unix } = options;
  const apiKeys = ringOf(options.apiKeys);
  const lifecycle = { draining: false };
  // Web pages cannot reach a Unix socket with any Host header.
  const allowedHosts = options.allowedHosts ?? (unix === undefined && isLoopback(host) ? [] : "any");
  const models = modelsOf(served);
  const connections = () => http.connections;
  const app = createApp(models, { ...options, apiKeys, allowedHosts, lifecycle, connections });
  const http: HttpServer = listenHttp({ ...options, app, models, lifecycle, apiKeys }, options);
  return http;
}

/** Makes an app listen. Throws if other machines could reach the address without a key. */
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
    handle: (request, { sent, address }) => app.fetch(request, { sent, address }),
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
 * Returns a function that reports whether a signal repeats the first one, because a single Ctrl-C arrived twice. Every
 * later signal counts as a new press.
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
 * Returns how many connections are affordable, at most `wanted`, with enough file descriptors left for everything else.
 * Throws if too few remain. Call it while nothing else opens files.
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

/** Throws if other machines could reach the address without a key. */
export function checkReach(host: string, apiKeys: KeyRing): void {
  if (isLoopback(host) || !apiKeys.isEmpty) return;
  throw new WordedError([
    `Cannot listen on "${host}": an address that other machines reach needs an API key; give `,
    { apiKeys: undefined },
    ", or listen on 127.0.0.1",
  ]);
}
