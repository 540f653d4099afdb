import { Buffer } from "node:buffer";
import type { IncomingMessage } from "node:http";
import { Duplex } from "node:stream";
import type { Clock } from "./clock.ts";

/** What a connection is doing: who may be closed, and after how long, depends on it. */
export type Phase =
  /** Nothing of a request has come yet on a new connection. */
  | "new"
  /** A request's head is incomplete. */
  | "head"
  /** A request's body is incomplete. */
  | "body"
  /** A request is being answered. */
  | "answer"
  /** A request was answered; the client may send another. */
  | "idle"
  /** The last answer was sent; what the client still sends is thrown away until it closes. */
  | "closing";

const SMALL_READ = 4 << 10;
const LARGE_READ = 256 << 10;
const LARGE_WRITE = 64 << 10;

/**
 * A connection as the stream that node:http takes, which counts what passes and says what it is doing. One read and
 * one write are under way at most. A request emits "cut" where the client ends in the middle of its body.
 */
export class Connection extends Duplex {
  /** When the phase began, by the clock, and bytes that were received since. */
  since: number;
  received = 0;
  /** Since when the client has taken nothing of what is being written; undefined while nothing is. */
  stalledSince: number | undefined;
  /** Requests that were received and not yet answered to the end. */
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
      // The client has left already; the first read says so.
    }
  }

  get phase(): Phase {
    if (this.#requests.length > 0) {
      return this.#requests.every(({ complete }) => complete) ? "answer" : "body";
    }
    if (this.#ending) return "closing";
    if (this.#headBegan) return "head";
    return this.#served ? "idle" : "new";
  }

  /** Requests that wait for their answers; more than one where the client does not wait for them. */
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
        const bytes = new Uint8Array(this.#readSize);
        const count = await this.socket.read(bytes);
        if (this.destroyed) return;
        if (count === null) return this.#ended();
        this.#count(count);
        // Whoever sends much gets large reads; an idle connection holds little memory.
        this.#readSize = count === bytes.length ? LARGE_READ : SMALL_READ;
        more = this.push(Buffer.from(bytes.buffer, 0, count));
      }
    } finally {
      this.#reading = false;
    }
  }

  /** A client that cut its request short may still read why that was refused; any other has left. */
  #ended(): void {
    this.#cut = this.phase === "body";
    if (this.#cut) this.#requests.find(({ complete }) => !complete)!.emit("cut");
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
   * Says that nothing more will come, and keeps reading until the client closes or the listener's patience ends: closed
   * with bytes unread, the system would send a reset, which can overtake the answer.
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
      // The client was first.
    }
    done(error);
  }

  /* What node:http wants of a socket; times are the listener's business. */

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
