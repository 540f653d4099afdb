import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { setImmediate } from "node:timers";
import { WordedError } from "../../engine/mod.ts";
import type { ConnectionLimits } from "../core/context.ts";
import { ApiError, clientLeft, requestId, toApiError } from "../core/errors.ts";
import { errorResponse } from "../core/error_response.ts";
import { settledWithin } from "../core/settled.ts";
import { Clock } from "./clock.ts";
import { Connection } from "./connection.ts";
import { isShortage } from "./descriptors.ts";
import { send, toRequest } from "./messages.ts";
import { type ListenAddress, listenAt, removeSocket } from "./socket.ts";

export interface ListenerOptions {
  readonly address: ListenAddress;
  /** Maximum open connections. */
  readonly maxConnections: number;
  readonly limits: ConnectionLimits;
  readonly handle: (request: Request, delivery: Delivery) => Response | Promise<Response>;
  /** Receives unexpected errors. */
  readonly onError: (error: unknown) => void;
}

/** Facts about a request that its content does not show. */
interface Delivery {
  /** Resolves when the connection has finished the answer: to true if the whole answer was sent. */
  readonly sent: Promise<boolean>;
  /** The client's IP address; undefined for a Unix socket. */
  readonly address: string | undefined;
}

/** Share of `maxConnections` in use above which each connection closes after its answer. */
const CROWDED = 0.75;
/** Milliseconds for which a connection in each phase is safe from eviction. */
const SAFE_MS = { new: 1000, head: 1000, closing: 250, idle: 1000, body: 2000 };
/** Milliseconds for which input after the last answer is read and discarded. */
const LINGER_MS = 2000;
/** Milliseconds that an idle connection stays open beyond the announced time, so that a last request is not lost. */
const IDLE_GRACE_MS = 1000;
/** Maximum requests that a client may pipeline. */
const MAX_PIPELINED = 32;
const RETRY_MS = 50;
const SHORTAGE_REPORT_MS = 60_000;

/**
 * An HTTP/1.1 server with bounded connections and times. Above `maxConnections`, the connection that has waited longest
 * without a complete request is closed for the next one. If all are being answered, new ones wait in the system's
 * queue. It waits when file descriptors run out. node:http parses and writes the messages.
 */
export class Listener {
  readonly #socket: Deno.Listener<Deno.TcpConn | Deno.UnixConn>;
  readonly #http: Server;
  readonly #open = new Set<Connection>();
  readonly #clock: Clock;
  #stopping = false;
  /** Ends the wait for a free connection. */
  #freed = () => {};
  #reportedAt = -Infinity;

  constructor(private readonly options: ListenerOptions) {
    const { address, limits } = options;
    this.#socket = listenAt(address);
    this.#http = createServer({ keepAliveTimeout: limits.idleMs, requireHostHeader: false });
    // node:http closes each connection after its answer unless it listens, so it is made to believe that it does.
    Object.defineProperty(this.#http, "listening", { get: () => !this.#stopping });
    this.#http.on("request", (incoming, outgoing) => this.#answer(incoming, outgoing));
    this.#http.on("clientError", (error, connection) => refuse(error, connection as unknown as Connection));
    const shortest = Math.min(limits.headMs, limits.idleMs, limits.stallMs);
    this.#clock = new Clock(() => this.#sweep(), shortest / 4);
    this.#accept();
  }

  /** Address of the listener; undefined for a Unix socket. */
  get address(): Deno.NetAddr | undefined {
    const { addr } = this.#socket;
    return addr.transport === "tcp" ? addr : undefined;
  }

  /** Connections that are open. */
  get connections(): number {
    return this.#open.size;
  }

  /** Accepts no more connections. Resolves when the answers in progress have ended, after `ms` at most. */
  async stop(ms: number): Promise<void> {
    this.#stopping = true;
    this.#socket.close();
    removeSocket(this.options.address);
    this.#freed();
    for (const connection of this.#open) {
      if (connection.pipelined === 0) connection.destroy();
    }
    const ended = [...this.#open].map((connection) =>
      new Promise<void>((resolve) => connection.once("close", resolve))
    );
    await settledWithin(Promise.all(ended), ms);
    this.#clock.stop();
    for (const connection of this.#open) connection.destroy();
  }

  async #accept(): Promise<void> {
    const { maxConnections } = this.options;
    while (!this.#stopping) {
      try {
        this.#welcome(await this.#socket.accept());
      } catch (error) {
        if (!this.#stopping) await this.#waitOut(error);
      }
      // The newest connection is already served, so another one is closed before accepting more.
      while (this.#open.size > maxConnections && !this.#stopping) {
        await (this.#evict() ? nextTurn() : this.#place());
      }
    }
  }

  #welcome(socket: Deno.TcpConn | Deno.UnixConn): void {
    const connection = new Connection(socket, this.#clock);
    this.#open.add(connection);
    connection.once("close", () => {
      this.#open.delete(connection);
      this.#freed();
    });
    this.#http.emit("connection", connection);
  }

  /** Recovers from a system error: closes the least useful connection and waits. */
  async #waitOut(error: unknown): Promise<void> {
    if (performance.now() - this.#reportedAt > SHORTAGE_REPORT_MS) {
      this.#reportedAt = performance.now();
      this.options.onError(isShortage(error) ? shortageOf(this.#open.size, error) : error);
    }
    this.#evict();
    await this.#place();
  }

  /** Resolves when a connection has closed, or after RETRY_MS, when another may be idle. */
  async #place(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#freed = resolve;
    await settledWithin(promise, RETRY_MS);
  }

  /** Closes the least useful connection. Returns false if all must be kept. */
  #evict(): boolean {
    const { now } = this.#clock;
    let [worst, most] = [undefined as Connection | undefined, 0];
    for (const connection of this.#open) {
      const worthlessness = this.#worthlessness(connection, now);
      if (worthlessness > most) [worst, most] = [connection, worthlessness];
    }
    if (worst === undefined) return false;
    worst.destroy();
    this.#open.delete(worst);
    return true;
  }

  /**
   * Returns the time for which a connection was useless; 0 if it must be kept. Idle connections have the highest
   * priority for closing.
   */
  #worthlessness(connection: Connection, now: number): number {
    const { phase, since, received } = connection;
    if (phase === "answer") return 0;
    const age = now - since;
    if (age < SAFE_MS[phase]) return 0;
    if (phase === "body") return received < age * this.options.limits.bodyBytesPerSecond / 1000 ? age : 0;
    return phase === "idle" ? age / 1e6 : age;
  }

  #sweep(): void {
    const { headMs, idleMs, stallMs } = this.options.limits;
    const { now } = this.#clock;
    for (const connection of this.#open) {
      const { phase, since, stalledSince = now } = connection;
      const age = now - since;
      if (now - stalledSince > stallMs) connection.destroy();
      else if (phase === "new" && age > headMs) connection.destroy();
      else if (phase === "head" && age > headMs) refuse(lateHead(headMs), connection);
      else if (phase === "idle" && age > idleMs + IDLE_GRACE_MS) connection.destroy();
      else if (phase === "closing" && age > LINGER_MS) connection.destroy();
    }
  }

  async #answer(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const connection = incoming.socket as unknown as Connection;
    // Further requests in the received bytes get no answers. The connection's last answer says why.
    if (connection.pipelined > MAX_PIPELINED) return;
    const isRefused = connection.pipelined === MAX_PIPELINED;
    if (isRefused) connection.discardInput();
    connection.beginRequest(incoming);
    const abort = new AbortController();
    const sent = new Promise<boolean>((resolve) => {
      outgoing.once("close", () => {
        connection.endRequest(incoming);
        if (!outgoing.writableFinished) abort.abort(clientLeft());
        resolve(outgoing.writableFinished);
      });
    });
    const response = isRefused
      ? answerTo(tooManyPipelined())
      : await this.#handle(incoming, abort.signal, { sent, address: connection.address });
    const last = () =>
      isRefused || !incoming.complete || this.#stopping ||
      this.connections > CROWDED * this.options.maxConnections;
    await send(response, outgoing, last);
  }

  async #handle(incoming: IncomingMessage, signal: AbortSignal, delivery: Delivery): Promise<Response> {
    try {
      return await this.options.handle(toRequest(incoming, signal), delivery);
    } catch (error) {
      if (!(error instanceof ApiError)) this.options.onError(error);
      return answerTo(toApiError(error));
    }
  }
}

function answerTo(error: ApiError): Response {
  const answer = errorResponse(error);
  answer.headers.set("x-request-id", requestId());
  return answer;
}

/** Waits until the descriptor of a closed connection is free. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Answers an invalid request after the requests before it, if possible, and closes the connection. */
function refuse(error: Error & { code?: string }, connection: Connection): void {
  if (!connection.writable) return void connection.destroy();
  connection.discardInput();
  const refusal = refusalOf(error, connection.phase === "body");
  if (connection.cutBody(refusal)) return;
  if (connection.pipelined > 0) connection.once("answered", () => end(connection, refusal));
  else end(connection, refusal);
}

/** Sends the refusal as the connection's last answer. */
function end(connection: Connection, refusal: ApiError): void {
  if (!connection.writable) return;
  const body = JSON.stringify(refusal.body());
  connection.end(
    `HTTP/1.1 ${refusal.status} ${REASONS[refusal.status]}\r\ncontent-type: application/json\r\n` +
      `content-length: ${body.length}\r\nconnection: close\r\nx-request-id: ${requestId()}\r\n\r\n${body}`,
  );
}

const REASONS: Record<number, string> = {
  400: "Bad Request",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
};

function refusalOf(error: Error & { code?: string }, isInBody: boolean): ApiError {
  if (error instanceof ApiError) return error;
  if (isInBody) return new ApiError(400, "invalid_body", "A chunk of the request's body is malformed");
  if (error.code === "HPE_HEADER_OVERFLOW") {
    return new ApiError(
      431,
      "headers_too_large",
      "The request's headers are too large; at most 16 KiB are read",
    );
  }
  return new ApiError(400, "invalid_request", "The request is not HTTP/1.1");
}

function lateHead(headMs: number): ApiError {
  return new ApiError(408, "head_timeout", `The request's head did not arrive within ${headMs / 1000} s`);
}

function tooManyPipelined(): ApiError {
  const message =
    `At most ${MAX_PIPELINED} requests may wait on one connection; send this one and those behind it again`;
  return new ApiError(429, "too_many_pipelined", message, {
    type: "rate_limit_error",
    headers: { "retry-after": "1" },
  });
}

function shortageOf(connections: number, cause: unknown): Error {
  const problem = `No file descriptors are left with ${connections} connections open; new ones wait`;
  const advice = [". Raise the limit (ulimit -n) or lower ", { maxConnections: undefined }];
  return new WordedError([problem, ...advice], { cause });
}
