import type { IncomingMessage, ServerResponse } from "node:http";
import { setImmediate } from "node:timers";
import { ApiError, clientLeft, incompleteBody } from "../core/errors.ts";

/** Pattern of methods that a fetch Request cannot have. Such methods are renamed and get the same 405. */
const FORBIDDEN = /^(?:trace|track|connect)$/i;
const HOST = /^[\w.:[\]-]+$/;

/**
 * Returns the request as a fetch Request. `signal` aborts when the client leaves. Throws ApiError for a head that
 * HTTP/1.1 does not allow.
 */
export function toRequest(incoming: IncomingMessage, signal: AbortSignal): Request {
  const method = FORBIDDEN.test(incoming.method!) ? "OTHER" : incoming.method!;
  const hasBody = method !== "GET" && method !== "HEAD";
  const url = urlOf(incoming);
  try {
    return new Request(url, {
      method,
      headers: pairs(incoming.rawHeaders),
      signal,
      body: hasBody ? bodyOf(incoming) : null,
    });
  } catch (error) {
    throw new ApiError(400, "invalid_request", `The request cannot be read: ${(error as Error).message}`);
  }
}

function urlOf({ httpVersion, rawHeaders, url }: IncomingMessage): string {
  const hosts = pairs(rawHeaders).filter(([name]) => name.toLowerCase() === "host").map(([, value]) => value);
  if (hosts.length > 1 || (hosts.length === 0 && httpVersion === "1.1")) {
    const message = `A request needs one Host header (got ${hosts.length})`;
    throw new ApiError(400, "invalid_host", message);
  }
  const host = hosts[0] ?? "localhost";
  const path = url!.replace(/^https?:\/\/[^/?#]*/i, "");
  const target = `http://${host}${path.startsWith("/") ? "" : "/"}${path}`;
  if (!HOST.test(host) || !URL.canParse(target)) {
    throw new ApiError(
      400,
      "invalid_host",
      `Invalid Host header or path: ${JSON.stringify(host.slice(0, 60))}`,
    );
  }
  return target;
}

/** Returns pairs of name and value from node:http's flat list. */
function pairs(raw: readonly string[]): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, i) => [raw[2 * i], raw[2 * i + 1]]);
}

/**
 * Returns the body as a stream. Nothing is read ahead, because waiting bodies of many clients could fill the memory.
 * The stream fails with the reason if the body is cut.
 */
function bodyOf(incoming: IncomingMessage): ReadableStream<Uint8Array> {
  let ended = false;
  return new ReadableStream<Uint8Array>({
    start(controller) {
      const fail = (reason: ApiError) => {
        if (ended) return;
        ended = true;
        controller.error(reason);
      };
      incoming.on("data", (bytes: Uint8Array) => {
        if (ended) return;
        controller.enqueue(bytes);
        if (controller.desiredSize! <= 0) incoming.pause();
      });
      incoming.on("end", () => {
        if (ended) return;
        ended = true;
        controller.close();
      });
      incoming.on("error", () => fail(incompleteBody()));
      incoming.on("close", () => fail(incompleteBody()));
      incoming.once("cut", fail);
      incoming.pause();
    },
    pull() {
      incoming.resume();
    },
    cancel() {
      ended = true;
      incoming.resume();
    },
  }, { highWaterMark: 0 });
}

/**
 * Sends the answer no faster than the client reads it; cancels its body when the client leaves. `last` returns whether
 * the connection closes afterwards. Never throws: a failing body resets the connection, so that no client mistakes a
 * part for the whole.
 */
export async function send(response: Response, outgoing: ServerResponse, last: () => boolean): Promise<void> {
  const reader = (response.body ?? new Blob().stream()).getReader();
  outgoing.once("close", () => void reader.cancel(clientLeft()).catch(() => {}));
  try {
    let next = reader.read();
    const { chunk, whole } = await firstOf(next, () => next = reader.read());
    if (outgoing.destroyed) return;
    writeHead(response, outgoing, whole ? chunk.length : undefined, last());
    if (chunk.length > 0) await write(outgoing, chunk);
    if (!whole) {
      for (let part = await next; !part.done; part = await reader.read()) await write(outgoing, part.value);
    }
    outgoing.end();
    // The unread rest of the request is discarded, so that the client can read the answer.
    outgoing.req.removeAllListeners("data").resume();
  } catch {
    outgoing.destroy();
  }
}

/** Returns the part of a body that is already available. A complete answer is sent with its length, in one packet. */
async function firstOf(
  first: Promise<ReadableStreamReadResult<Uint8Array>>,
  readNext: () => Promise<ReadableStreamReadResult<Uint8Array>>,
): Promise<{ chunk: Uint8Array; whole: boolean }> {
  const nothing = new Uint8Array();
  if (!await isReady(first)) return { chunk: nothing, whole: false };
  const { done, value } = await first;
  if (done) return { chunk: nothing, whole: true };
  const second = readNext();
  return { chunk: value, whole: await isReady(second) && (await second).done };
}

/** Returns true if the promise settles before any outside event. */
function isReady(promise: Promise<unknown>): Promise<boolean> {
  const settled = () => true;
  const later = new Promise<boolean>((resolve) => setImmediate(resolve, false));
  return Promise.race([promise.then(settled, settled), later]);
}

function writeHead(
  { status, headers }: Response,
  outgoing: ServerResponse,
  length: number | undefined,
  last: boolean,
): void {
  for (const [name, value] of headers) outgoing.appendHeader(name, value);
  if (length !== undefined && status !== 204 && status !== 304 && !headers.has("content-length")) {
    if (outgoing.req.method !== "HEAD" || length > 0) outgoing.setHeader("content-length", length);
  }
  if (last) outgoing.setHeader("connection", "close");
  outgoing.writeHead(status);
  if (length === undefined) outgoing.flushHeaders();
}

/** Writes bytes. Resolves when more can be written. Throws if the client has left. */
async function write(outgoing: ServerResponse, bytes: Uint8Array): Promise<void> {
  if (!outgoing.write(bytes) && !outgoing.destroyed) {
    const { promise, resolve } = Promise.withResolvers<void>();
    outgoing.once("drain", resolve).once("close", resolve);
    await promise;
    outgoing.off("drain", resolve).off("close", resolve);
  }
  if (outgoing.destroyed) throw clientLeft();
}
