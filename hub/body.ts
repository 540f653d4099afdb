import { Transient } from "./errors.ts";
import type { Piece } from "./unfinished.ts";

interface BodyOptions {
  /** Maximum milliseconds without a byte from the server. */
  readonly stallMs: number;
  readonly host: string;
  /** Called after each read with the number of bytes received. */
  readonly onBytes: (count: number) => void;
}

/** Reads a response in order, and tracks the position of the next byte in the piece. */
export class Body {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #options: BodyOptions;
  /** Bytes of the last chunk that were not requested yet. */
  #rest: Uint8Array = new Uint8Array(0);

  constructor(response: Response, public position: number, options: BodyOptions) {
    this.#reader = response.body?.getReader();
    this.#options = options;
  }

  /** Returns the next bytes, at most `most`. Throws Transient on a timeout and at the end. */
  async next(most: number, signal: AbortSignal): Promise<Uint8Array> {
    if (this.#rest.length === 0) this.#rest = await this.#read(signal);
    const chunk = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(chunk.length);
    return chunk;
  }

  async #read(signal: AbortSignal): Promise<Uint8Array> {
    const { stallMs, host, onBytes } = this.#options;
    let stalled = false;
    const timer = setTimeout(() => {
      stalled = true;
      this.close();
    }, stallMs);
    try {
      while (true) {
        const { done, value } = await this.#reader?.read() ?? { done: true, value: undefined };
        if (stalled) throw new Error();
        if (done) throw new Transient(`${host} closed the connection at byte ${this.position}`);
        if (value!.length === 0) continue;
        onBytes(value!.length);
        return value!;
      }
    } catch (error) {
      signal.throwIfAborted();
      if (stalled) throw new Transient(`${host} has sent nothing for ${stallMs / 1000} s`);
      if (error instanceof Transient) throw error;
      throw new Transient(`${host} broke the connection at byte ${this.position}`);
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    void this.#reader?.cancel().catch(() => {});
  }
}

/**
 * Writes a body's bytes into the piece's file, up to byte `end` of the piece. Bytes received before a failure
 * are kept.
 */
export async function readSpan(body: Body, piece: Piece, end: number, signal: AbortSignal): Promise<void> {
  if (body.position >= end) return;
  using file = await Deno.open(piece.path, { write: true, create: true });
  await file.seek(piece.remote.offset + body.position, Deno.SeekMode.Start);
  while (body.position < end) {
    const chunk = await body.next(end - body.position, signal);
    for (let done = 0; done < chunk.length;) done += await file.write(chunk.subarray(done));
    piece.done.add(body.position, body.position + chunk.length);
    body.position += chunk.length;
  }
}
