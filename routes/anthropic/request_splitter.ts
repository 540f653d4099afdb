import { concat } from "@std/bytes/concat.js";
import { JSON_LIMITS } from "../core/json.ts";
import { ApiError } from "../core/errors.ts";

const [QUOTE, BACKSLASH, ZERO] = [0x22, 0x5c, 0x30];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
const SPACES: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Maximum bytes of the body without its requests, not counting a zero and a comma for each request. */
const FRAME_BYTES = 2 ** 16;

export interface SplitterLimits {
  /** Maximum bytes of one request. */
  readonly requestBytes: number;
  readonly requests: number;
}

/**
 * Splits `{"requests": [{…}, {…}]}` into its requests while it arrives, so that a body of 100,000 requests takes the
 * memory of one request. Throws ApiError for a body of another form. Requests are not checked.
 */
export class RequestSplitter {
  count = 0;
  #depth = 0;
  #isText = false;
  #isEscaped = false;
  /** Whether the value at depth 2 of the body is an array. */
  #isInArray = false;
  #isInRequest = false;
  #request: Uint8Array[] = [];
  #requestBytes = 0;
  /** The body without spaces, and with a zero in place of each request. */
  readonly #frame: number[] = [];

  constructor(private readonly limits: SplitterLimits) {}

  /** Number of buffered bytes of a request that has not ended. */
  get keptBytes(): number {
    return this.#requestBytes;
  }

  /** Yields the requests that end in this part of the body; each is valid until the next one. */
  *add(bytes: Uint8Array): Generator<Uint8Array> {
    let start = 0;
    for (let i = 0; i < bytes.length; i++) {
      const wasInRequest = this.#isInRequest;
      this.#step(bytes[i]);
      if (this.#isInRequest && !wasInRequest) start = i;
      if (this.#isInRequest || !wasInRequest) continue;
      this.#keep(bytes.subarray(start, i + 1));
      yield this.#whole();
    }
    // The bytes are copied, because the reader may reuse the memory.
    if (this.#isInRequest) this.#keep(bytes.slice(start));
  }

  /** Ends the body. Throws ApiError if it is incomplete. */
  end(): void {
    let frame: { readonly requests?: unknown };
    try {
      frame = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(this.#frame)));
    } catch (error) {
      const reason = error instanceof Error ? error.message.slice(0, 200) : "";
      throw new ApiError(400, "invalid_json", `The request body is not valid JSON: ${reason}`);
    }
    const requests = Object(frame).requests;
    if (requests === undefined) {
      throw wrong("missing_required_parameter", 'Missing required parameter "requests"');
    }
    const isSplit = Array.isArray(requests) && requests.length === this.count &&
      requests.every((entry) => entry === 0);
    if (!isSplit || this.count === 0) {
      const got = Array.isArray(requests) && requests.length === 0 ? " (got none)" : "";
      throw wrong("invalid_value", `Invalid "requests": must be an array of 1 or more objects${got}`);
    }
  }

  #step(byte: number): void {
    if (this.#isText) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (byte === BACKSLASH) this.#isEscaped = true;
      else if (byte === QUOTE) this.#isText = false;
    } else if (byte === QUOTE) this.#isText = true;
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) this.#open(byte);
    else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) return this.#close(byte);
    if (!this.#isInRequest && (this.#isText || !SPACES.has(byte))) this.#frameByte(byte);
  }

  #open(byte: number): void {
    if (this.#depth === 1) this.#isInArray = byte === OPEN_ARRAY;
    if (this.#depth === 2 && this.#isInArray && byte === OPEN_OBJECT) {
      this.#isInRequest = true;
      this.#frameByte(ZERO);
      this.count++;
      if (this.count > this.limits.requests) {
        throw wrong("invalid_value", `Invalid "requests": must have at most ${this.limits.requests} entries`);
      }
    }
    // A request is two levels below the body.
    if (++this.#depth > JSON_LIMITS.depth + 2) {
      const message = `The request body must be nested at most ${JSON_LIMITS.depth + 2} levels deep`;
      throw wrong("invalid_json", message);
    }
  }

  #close(byte: number): void {
    this.#depth--;
    const ends = this.#isInRequest && this.#depth === 2;
    if (ends) this.#isInRequest = false;
    else if (!this.#isInRequest) this.#frameByte(byte);
  }

  #frameByte(byte: number): void {
    this.#frame.push(byte);
    if (this.#frame.length <= FRAME_BYTES + 2 * this.count) return;
    throw wrong("invalid_json", `The request body without its requests must be at most ${FRAME_BYTES} bytes`);
  }

  #keep(bytes: Uint8Array): void {
    this.#requestBytes += bytes.length;
    const { requestBytes } = this.limits;
    if (this.#requestBytes > requestBytes) {
      const message = `Each request must be at most ${requestBytes} bytes (requests[${
        this.count - 1
      }] has more)`;
      throw new ApiError(413, "request_too_large", message, { param: `requests[${this.count - 1}]` });
    }
    this.#request.push(bytes);
  }

  #whole(): Uint8Array {
    const parts = this.#request;
    const whole = parts.length === 1 ? parts[0] : concat(parts);
    this.#request = [];
    this.#requestBytes = 0;
    return whole;
  }
}

function wrong(code: string, message: string): ApiError {
  return new ApiError(400, code, message, code === "invalid_json" ? {} : { param: "requests" });
}
