import type { Engine } from "../engine/types.ts";
import { type AppOptions, createApp } from "./app.ts";
import { ApiError, errorResponse, requestId, toApiError } from "./shared/errors.ts";
import { isLoopback } from "./guard.ts";
import { settledWithin } from "./shared/settled.ts";

export interface ServeOptions extends Omit<AppOptions, "lifecycle"> {
  /** Default 127.0.0.1. Another machine's reach needs a key. */
  readonly host?: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** How long live requests may go on after the stop; default 10,000 ms. */
  readonly drainMs?: number;
  /** Stop on SIGTERM and SIGINT; a second signal cancels what still runs. Default true. */
  readonly signals?: boolean;
}

export interface HttpServer {
  readonly hostname: string;
  readonly port: number;
  /**
   * Resolves when the server has stopped; the engine is drained then, not closed. Connections of clients that do not
   * take their answer may linger: exit the process.
   */
  readonly finished: Promise<void>;
  /** Takes no new work, lets live requests end within `drainMs`, then cancels them. Stops once, however often called. */
  shutdown(drainMs?: number): Promise<void>;
}

/** After their cancellation, requests have this long to say goodbye. */
const GOODBYE_MS = 1000;
/** One Ctrl-C can reach the process twice: from the terminal, and through the task runner. */
const SAME_SIGNAL_MS = 300;

/** Listens and answers. Throws where the address would be open to others without a key. */
export function serveHttp(engine: Engine, options: ServeOptions = {}): HttpServer {
  const { host = "127.0.0.1", port = 0, drainMs = 10_000, signals = true } = options;
  checkReach(host, options.apiKeys ?? []);
  const lifecycle = { draining: false };
  const allowedHosts = options.allowedHosts ?? (isLoopback(host) ? [] : "any");
  const app = createApp(engine, { ...options, allowedHosts, lifecycle });
  const server = Deno.serve({
    hostname: host,
    port,
    onListen() {},
    onError(error) {
      // Deno tells of interrupted answers here too; those were reported already.
      if (!(error instanceof ApiError)) options.onError?.(error);
      const answer = errorResponse(toApiError(error));
      answer.headers.set("x-request-id", requestId());
      return answer;
    },
  }, (request) => app.fetch(request));

  const stopped = Promise.withResolvers<void>();
  let stopping: Promise<void> | undefined;
  const drain = (ms: number) => engine.drain(ms).catch((error) => options.onError?.(error));
  const shutdown = (ms = drainMs) => stopping ??= stop(ms);

  async function stop(ms: number): Promise<void> {
    lifecycle.draining = true;
    const batches = options.batches?.close().catch((error) => options.onError?.(error));
    await settledWithin(Promise.all([drain(ms), batches]), ms + GOODBYE_MS);
    await settledWithin(server.shutdown(), GOODBYE_MS);
    for (const name of watched) Deno.removeSignalListener(name, onSignal);
    stopped.resolve();
  }

  let signalledAt = -Infinity;
  function onSignal(): void {
    const now = performance.now();
    if (!lifecycle.draining) {
      signalledAt = now;
      shutdown();
    } else if (now - signalledAt > SAME_SIGNAL_MS) {
      drain(0);
    }
  }

  const watched: Deno.Signal[] = signals ? ["SIGTERM", "SIGINT"] : [];
  for (const name of watched) Deno.addSignalListener(name, onSignal);
  return { hostname: server.addr.hostname, port: server.addr.port, finished: stopped.promise, shutdown };
}

/** Throws where an address that other machines reach would be open to them without a key. */
export function checkReach(host: string, apiKeys: readonly string[]): void {
  if (isLoopback(host) || apiKeys.length > 0) return;
  throw new Error(
    `Cannot listen on "${host}": an address that other machines reach needs an API key; ` +
      "give --api-key or COMPY_API_KEY, or listen on 127.0.0.1",
  );
}

/**
 * The keys from the command line, else from the environment (COMPY_API_KEY). Throws for an empty option: a server
 * that was meant to be guarded must not be open.
 */
export function readApiKeys(option: string | undefined, environment: string | undefined): string[] {
  if (option === "") throw new Error("Cannot use --api-key: it is empty");
  const key = option ?? environment;
  return key ? [key] : [];
}
