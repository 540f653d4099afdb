import { PullError, RangeRefused, Transient } from "./errors.ts";
import { quote } from "./names.ts";
import { checkScheme } from "./source.ts";

/** Settings of a hub client. */
export interface HubOptions {
  /** Address of the hub. */
  readonly endpoint: URL;
  /** Access token. It is sent only to `endpoint`. */
  readonly token?: string;
  /** Maximum milliseconds without a byte. */
  readonly stallMs?: number;
}

/** The response to a request, after all redirects. */
export interface Answer {
  readonly response: Response;
  /** Address of the final response. */
  readonly url: URL;
  /** The SHA-256 that the hub stated before it redirected to the file. */
  readonly linkedSha256: string | undefined;
}

const MAX_REDIRECTS = 10;
const DEFAULT_STALL_MS = 30_000;
/** Maximum characters of a redirect's address; signed ones have about 2,000. */
const MAX_ADDRESS = 16_384;

/** A client for a hub and the hosts that it redirects to. */
export class HubClient {
  readonly endpoint: URL;
  readonly stallMs: number;
  readonly #token: string | undefined;

  constructor({ endpoint, token, stallMs = DEFAULT_STALL_MS }: HubOptions) {
    this.endpoint = endpoint;
    this.stallMs = stallMs;
    this.#token = token;
  }

  /**
   * Requests an address; `range` is [first byte, end). Follows redirects only to https, and sends the token only to the
   * hub. Throws Transient for failures that a retry may fix, and PullError for others.
   */
  async get(
    start: URL,
    { range, signal }: { range?: readonly [number, number]; signal?: AbortSignal },
  ): Promise<Answer> {
    let url = start;
    let linkedSha256: string | undefined;
    for (let hops = 0; hops <= MAX_REDIRECTS; hops++) {
      const response = await this.#send(url, range, signal);
      linkedSha256 = sha256Of(response.headers.get("x-linked-etag")) ?? linkedSha256;
      const location = response.headers.get("location");
      if (response.status < 300 || response.status >= 400 || location === null) {
        if (response.ok) return { response, url, linkedSha256 };
        await response.body?.cancel();
        throw this.#refusal(response, url, hops > 0);
      }
      await response.body?.cancel();
      url = redirected(url, location);
    }
    throw new PullError(
      "PULL_PROTOCOL",
      `${start.host} redirects more than ${MAX_REDIRECTS} times, the last time to ${url.host}`,
    );
  }

  async #send(
    url: URL,
    range: readonly [number, number] | undefined,
    signal?: AbortSignal,
  ): Promise<Response> {
    const headers = new Headers({ "accept-encoding": "identity", "user-agent": "compy" });
    if (range) headers.set("range", `bytes=${range[0]}-${range[1] - 1}`);
    if (this.#token !== undefined && url.origin === this.endpoint.origin) {
      headers.set("authorization", `Bearer ${this.#token}`);
    }
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), this.stallMs);
    try {
      const signals = signal ? [signal, late.signal] : [late.signal];
      return await fetch(url, { headers, redirect: "manual", signal: AbortSignal.any(signals) });
    } catch (error) {
      signal?.throwIfAborted();
      if (late.signal.aborted) {
        throw new Transient(`${url.host} has not answered for ${this.stallMs / 1000} s`);
      }
      throw new Transient(`cannot reach ${url.host}: ${networkReason(error)}`);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Returns the error for a refused request. `after`: a redirect led to the address; such links expire. */
  #refusal({ status, headers }: Response, url: URL, after: boolean): Error {
    if (status === 408 || status === 425 || status === 429 || status >= 500) {
      return new Transient(`${url.host} answers ${status}`, retryAfter(headers));
    }
    if (after && url.origin !== this.endpoint.origin) {
      return new Transient(`${url.host}, where the hub redirects, answers ${status}`);
    }
    const what = `${url.host} answers ${status} for ${quote(url.pathname)}`;
    if (status === 401 || status === 403) {
      const advice = this.#token === undefined
        ? "it does not exist, or reading it needs a token in HF_TOKEN"
        : "the token in HF_TOKEN may not read it: check on its page whether you must accept conditions first";
      return new PullError("PULL_DENIED", `${what}: ${advice}`);
    }
    if (status === 404 || status === 410) {
      return new PullError("PULL_NOT_FOUND", `${what}: there is no such repository, revision or file`);
    }
    if (status === 416) return new RangeRefused(`${url.host} has fewer bytes than it announced`);
    return new PullError("PULL_PROTOCOL", `${what}, which a download does not expect`);
  }
}

/** Returns the redirect's address. Throws PullError for an address without TLS. */
function redirected(from: URL, location: string): URL {
  const refuse = (why: string): never => {
    throw new PullError("PULL_PROTOCOL", `${from.host} redirects to ${quote(location)}: ${why}`);
  };
  if (location.length > MAX_ADDRESS) refuse(`an address of ${location.length} characters`);
  if (!URL.canParse(location, from)) refuse("it is not a valid address");
  const url = new URL(location, from);
  if (from.protocol === "https:" && url.protocol !== "https:") {
    refuse("it leads from https to another scheme");
  }
  checkScheme(url, refuse);
  if (url.username !== "" || url.password !== "") refuse("it contains a user name or password");
  return url;
}

/** Returns the wait in milliseconds from `Retry-After`; undefined if the header is missing or invalid. */
export function retryAfter(headers: Headers): number | undefined {
  const header = headers.get("retry-after");
  if (header === null) return undefined;
  if (/^\d{1,9}$/.test(header)) return 1000 * Number(header);
  const date = Date.parse(header);
  // This machine's clock may be wrong, so a date is compared with the date of the answer.
  const answered = Date.parse(headers.get("date") ?? "") || Date.now();
  return Number.isNaN(date) ? undefined : Math.max(0, date - answered);
}

function sha256Of(etag: string | null): string | undefined {
  return /^(?:W\/)?"?([0-9a-f]{64})"?$/.exec(etag ?? "")?.[1];
}

/** Returns the reason of a failed connection, without the address, which may contain a signature. */
function networkReason(error: unknown): string {
  if (!(error instanceof Error)) return "the connection failed";
  let cause: unknown = error;
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause;
  const text = (cause as Error).message.replace(/\(?https?:\/\/[^\s)]+\)?/g, "").replace(/\s+/g, " ");
  return text.replace(/^error sending request (for url )?/, "").replace(/^[\s:]+|[\s:]+$/g, "") ||
    "the connection failed";
}
