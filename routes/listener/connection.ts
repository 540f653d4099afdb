import { Buffer } from "node:buffer";
import type { IncomingMessage } from "node:http";
import { Duplex } from "node:stream";
import { type ApiError, incompleteBody } from "../core/errors.ts";
import type { Clock } from "./clock.ts";

/** The state of a connection, which determines whether and when the listener may close it. */
export type Phase =
  /** A new connection that has received nothing. */
  | "new"
  /** A request's head is incomplete. */
  | "head"
  /** A request's body is incomplete. */
  | "body"
  /** A request is being answered. */
  | "answer"
  /** A request was answered; the client may send another. */
  | "idle"
  /** The last answer was sent; further input is discarded until the client closes. */
  | "closing";

const SMALL_READ = 4 << 10;
const LARGE_READ = 64 << 10;
/** Buffer for discarded input, shared by all connections. */
const DISCARDED = new Uint8Array(LARGE_READ);
const LARGE_WRITE = 64 << 10;

/**
 * A connection as a stream for node:http, which counts bytes and tracks its phase. At most one read and one write run
 * at a time. A request emits "cut" when its body ends too early or is malformed. The connection emits "answered" when
 * no request is left to answer.
 */
export class Connection extends Duplex {
  /** Start of the phase on the clock, and the number of bytes received since. */
  since: number;
  received = 0;
  /** Time since which the client has accepted nothing of the current write; undefined without a write. */
  stalledSince: number | undefined;
  /** Requests whose answers are not complete. */
  readonly #requests: IncomingMessage[] = [];
  #served = false;
  #headBegan = false;
  #ending = false;
  #cut = false;
  #reading = false;
  #readSize = SMALL_READ;

  constructor(private readonly socket: Deno.TcpConn | Deno.UnixConn, private readonly clock: Clock) {
    super({ allowHalfOpen: true, readableHighWaterMark: 1 });
    this.since = clock.now;
    try {
      if ("setNoDelay" in socket) {
        socket.setNoDelay(true);
        socket.setKeepAlive(true);
      }
    } catch {
      // The client has already left, and the first read will report it.
    }
  }

  /** The client's IP address; undefined for a Unix socket. */
  get address(): string | undefined {
    const { remoteAddr } = this.socket;
    return "hostname" in remoteAddr ? remoteAddr.hostname : undefined;
  }

  get phase(): Phase {
    if (this.#requests.length > 0) {
      return this.#requests.every(({ complete }) => complete) ? "answer" : "body";
    }
    if (this.#ending) return "closing";
    if (this.#headBegan) return "head";
    return this.#served ? "idle" : "new";
  }

  /** Number of unanswered requests; more than one if the client pipelines. */
  get pipelined(): number {
    return this.#requests.length;
  }

  beginRequest(request: IncomingMessage): void {
    this.#requests.push(request);
    this.#headBegan = false;
    this.#enterPhase();
  }

  endRequest(request: IncomingMessage): void {
    const at = this.#requests.indexOf(request);
    if (at >= 0) this.#requests.splice(at, 1);
    this.#served = true;
    this.#enterPhase();
    if (this.#requests.length === 0) this.emit("answered");
  }

  /** Ends the incomplete body of the last request, with its reason. Returns false when no body is incomplete. */
  cutBody(reason: ApiError): boolean {
    return this.#requests.find(({ complete }) => !complete)?.emit("cut", reason) ?? false;
  }

  /** Drops all further input: the parser may already serve another connection. */
  discardInput(): void {
    this.removeAllListeners("data").resume();
  }

  #enterPhase(): void {
    this.since = this.clock.now;
    this.received = 0;
  }

  override _read(): void {
    if (!this.#reading) this.#receive().catch((error) => this.destroy(error));
  }

  async #receive(): Promise<void> {
    this.#reading = true;
    try {
      for (let more = true; more && !this.destroyed;) {
        // After the last answer, input is read only so that the system does not reset the connection.
        const bytes = this.#ending ? DISCARDED : new Uint8Array(this.#readSize);
        const count = await this.socket.read(bytes);
        if (this.destroyed) return;
        if (bytes === DISCARDED && count !== null) continue;
        if (count === null) return this.#ended();
        this.#count(count);
        // A client that sends much gets large reads; idle connections occupy little memory.
        this.#readSize = count === bytes.length ? LARGE_READ : SMALL_READ;
        // The body keeps these parts, so a small part is copied out of its large buffer.
        const part = count < bytes.length / 2 ? bytes.slice(0, count) : bytes.subarray(0, count);
        more = this.push(Buffer.from(part.buffer, 0, count));
      }
    } finally {
      this.#reading = false;
    }
  }

  /**
   * Handles the end of input. A client that cut its request short may still read the refusal; any other client has
   * left.
   */
  #ended(): void {
    this.#cut = this.phase === "body";
    if (this.#cut) this.cutBody(incompleteBody());
    else this.push(null);
  }

  #count(bytes: number): void {
    if (this.#requests.length === 0 && !this.#headBegan && !this.#ending) {
      this.#headBegan = true;
      this.#enterPhase();
    }
    this.received += bytes;
  }

  override _write(chunk: Uint8Array, _encoding: string, done: (error?: Error) => void): void {
    this.#send(chunk).then(() => done(), done);
  }

  override _writev(chunks: { chunk: Uint8Array }[], done: (error?: Error) => void): void {
    this.#send(Buffer.concat(chunks.map(({ chunk }) => chunk))).then(() => done(), done);
  }

  async #send(bytes: Uint8Array): Promise<void> {
    try {
      for (let sent = 0; sent < bytes.length;) {
        this.stalledSince = this.clock.now;
        sent += await this.socket.write(bytes.subarray(sent, sent + LARGE_WRITE));
      }
    } finally {
      this.stalledSince = undefined;
    }
  }

  /**
   * Closes the sending side, and keeps reading until the client closes or the listener gives up. Closing with unread
   * bytes would make the system send a reset, which can overtake the answer.
   */
  override _final(done: (error?: Error) => void): void {
    this.#ending = true;
    this.#enterPhase();
    this.socket.closeWrite().then(() => done(), () => done());
    this.resume();
    if (this.#cut) this.push(null);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    try {
      this.socket.close();
    } catch {
      // The client has already closed the connection.
    }
    done(error);
  }

  /* Methods that node:http requires of a socket. The listener handles all timeouts. */

  setTimeout(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}
