import { FileChanged, PullError, RangeRefused, Transient } from "./errors.ts";
import { Body, readSpan } from "./body.ts";
import type { Answer, HubClient } from "./http.ts";
import { quote } from "./names.ts";
import type { RetryPolicy } from "./retry_policy.ts";
import { Ranges } from "./ranges.ts";
import { MAX_FILE_BYTES } from "./repository.ts";
import type { Piece } from "./unfinished.ts";

const MIN_SEGMENT = 2 ** 20;
const MAX_SEGMENT = 64 * 2 ** 20;
/** Number of consecutive ignored ranges after which a server counts as one without range support. */
const IGNORED_RANGES = 3;

export interface TransferOptions {
  readonly client: HubClient;
  readonly retries: RetryPolicy;
  readonly signal?: AbortSignal;
  /** Called with each number of bytes received, whether useful or not. */
  readonly onBytes?: (count: number) => void;
}

/** Fetches bytes of pieces into their files. Throws FileChanged, PullError and the signal's reason. */
export class Transfer implements Disposable {
  readonly #client: HubClient;
  readonly #retries: RetryPolicy;
  readonly #onBytes: (count: number) => void;
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  /** Open responses of servers without range support, each read as far as needed. */
  readonly #bodies = new Map<Piece, Body>();
  readonly #withoutRanges = new Set<Piece>();
  readonly #ignored = new Map<Piece, number>();

  constructor({ client, retries, signal, onBytes = () => {} }: TransferOptions) {
    this.#client = client;
    this.#retries = retries;
    this.#onBytes = onBytes;
    this.#signal = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
  }

  /** Closes open connections. */
  [Symbol.dispose](): void {
    for (const body of this.#bodies.values()) body.close();
    this.#stop.abort();
  }

  /**
   * Fetches the missing bytes of a piece from `start` to `end`, or to its end. The piece's size is known afterwards.
   */
  async ensure(piece: Piece, start: number, end: number): Promise<void> {
    await this.#retries.retry(async () => {
      while (true) {
        const gap = piece.done.gap(start, Math.min(end, piece.size ?? Infinity));
        if (gap === undefined && piece.size !== undefined) return;
        if (this.#withoutRanges.has(piece)) return await this.#readUpTo(piece, end);
        await this.#segment(piece, ...(gap ?? [start, end]));
      }
    }, this.#signal);
  }

  /** Fetches all missing bytes over several connections. All sizes must be known. */
  async all(pieces: readonly Piece[], connections: number): Promise<void> {
    const busy = new Map(pieces.map((piece) => [piece, new Ranges()]));
    let failure: { error: unknown } | undefined;
    const work = async () => {
      while (!failure) {
        const next = this.#next(pieces, busy, connections);
        if (!next) return;
        const { piece, start, end } = next;
        let broken: Transient | undefined;
        busy.get(piece)!.add(start, end);
        try {
          if (this.#withoutRanges.has(piece)) await this.#readUpTo(piece, end);
          else await this.#segment(piece, start, end);
        } catch (error) {
          if (!(error instanceof Transient)) throw error;
          broken = error;
        } finally {
          busy.get(piece)!.remove(start, end);
        }
        if (broken) await this.#retries.wait(broken, this.#signal);
      }
    };
    const guarded = async () => {
      try {
        await work();
      } catch (error) {
        failure ??= { error };
        this.#stop.abort(error);
      }
    };
    await Promise.all(Array.from({ length: connections }, guarded));
    if (failure) throw failure.error;
  }

  /** Returns the next range that no connection fetches yet; the whole piece for a server without range support. */
  #next(pieces: readonly Piece[], busy: ReadonlyMap<Piece, Ranges>, connections: number) {
    const left = pieces.reduce((sum, { size, done }) => sum + size! - done.bytes, 0);
    const most = Math.min(MAX_SEGMENT, Math.max(MIN_SEGMENT, Math.ceil(left / (2 * connections))));
    for (const piece of pieces) {
      const size = piece.size!;
      const taken = busy.get(piece)!;
      if (this.#withoutRanges.has(piece)) {
        if (taken.bytes === 0 && !piece.done.covers(0, size)) return { piece, start: 0, end: size };
        continue;
      }
      const gap = new Ranges([...piece.done.pairs, ...taken.pairs]).gap(0, size);
      if (gap) return { piece, start: gap[0], end: Math.min(gap[1], gap[0] + most) };
    }
    return undefined;
  }

  /** Requests one range of a piece. */
  async #segment(piece: Piece, start: number, end: number): Promise<void> {
    const answer = await this.#range(piece, start, end);
    const { response, url } = answer;
    let to: number;
    try {
      if (response.status === 200) {
        if (start > 0) this.#refuseWhole(piece, url); // or a network's login page
        this.#checkVersion(piece, answer, wholeLength(answer, piece));
        to = piece.size!;
      } else {
        const range = contentRange(answer, start, end, piece);
        this.#checkVersion(piece, answer, range.total);
        to = range.end;
      }
    } catch (error) {
      await response.body?.cancel();
      throw error;
    }
    this.#ignored.delete(piece);
    const body = new Body(response, start, {
      stallMs: this.#client.stallMs,
      host: url.host,
      onBytes: this.#received,
    });
    if (to > end) { // the whole file: later requests read from this response
      this.#withoutRanges.add(piece);
      this.#bodies.set(piece, body);
      await this.#readUpTo(piece, end);
    } else {
      await readSpan(body, piece, to, this.#signal);
      body.close();
    }
  }

  async #range({ remote }: Piece, start: number, end: number): Promise<Answer> {
    try {
      return await this.#client.get(remote.url, { range: [start, end], signal: this.#signal });
    } catch (error) {
      // If only an earlier response stated the length, a later one may contradict it.
      if (error instanceof RangeRefused && remote.size === undefined) throw new FileChanged(error.message);
      throw error;
    }
  }

  /** Counts a response that ignored the range. Throws Transient. */
  #refuseWhole(piece: Piece, url: URL): never {
    const count = (this.#ignored.get(piece) ?? 0) + 1;
    this.#ignored.set(piece, count);
    if (count >= IGNORED_RANGES) this.#withoutRanges.add(piece);
    throw new Transient(`${url.host} sends the whole file although a part was requested`);
  }

  /** Reads from a server without range support, in one response from the first byte on. */
  async #readUpTo(piece: Piece, end: number): Promise<void> {
    let body = this.#bodies.get(piece);
    if (body === undefined) {
      const answer = await this.#client.get(piece.remote.url, { signal: this.#signal });
      this.#checkVersion(piece, answer, wholeLength(answer, piece));
      const { response, url } = answer;
      body = new Body(response, 0, {
        stallMs: this.#client.stallMs,
        host: url.host,
        onBytes: this.#received,
      });
      this.#bodies.set(piece, body);
    }
    try {
      await readSpan(body, piece, Math.min(end, piece.size!), this.#signal);
    } catch (error) {
      this.#bodies.delete(piece);
      body.close();
      throw error;
    }
    if (body.position < piece.size!) return;
    this.#bodies.delete(piece);
    body.close();
  }

  readonly #received = (count: number) => {
    this.#retries.progress();
    this.#onBytes(count);
  };

  /** Checks that the response has the same version of the file. Throws FileChanged and Transient. */
  #checkVersion(piece: Piece, { response, url, linkedSha256 }: Answer, total: number): void {
    const { remote, size, validators } = piece;
    const file = quote(remote.path);
    if (remote.sha256 !== undefined && linkedSha256 !== undefined && linkedSha256 !== remote.sha256) {
      throw new FileChanged(`${file} has another SHA-256 now`);
    }
    if (remote.size !== undefined && total !== remote.size) {
      const lengths = `the hub's list says ${remote.size} bytes, and ${url.host} ${total}`;
      throw new Transient(`The length of ${file} is not known: ${lengths}`);
    }
    if (total > MAX_FILE_BYTES) {
      throw new PullError(
        "PULL_PROTOCOL",
        `${url.host} says that ${file} has ${total} bytes, more than any model`,
      );
    }
    if (size !== undefined && total !== size) {
      throw new FileChanged(`${file} has ${total} bytes now, not ${size}`);
    }
    const validator = response.headers.get("etag") ?? response.headers.get("last-modified");
    const known = validators.get(url.host);
    if (known !== undefined && validator !== null && known !== validator) {
      validators.delete(url.host);
      throw new FileChanged(`${file} has changed on ${url.host}`);
    }
    if (validator !== null && validator.length <= 1024) validators.set(url.host, validator);
    piece.size = total;
  }
}

/** Returns the number of bytes of the whole file, from the response's header. */
function wholeLength({ response, url }: Answer, { size, remote }: Piece): number {
  checkEncoding(response, url);
  const header = response.headers.get("content-length");
  if (header === null) {
    if (size !== undefined) return size;
    throw new PullError(
      "PULL_PROTOCOL",
      `${url.host} does not announce the size of ${quote(remote.path)}`,
    );
  }
  return lengthOf(header, url);
}

/** Returns the range of a partial response, from `start` up to at most `end`. */
function contentRange({ response, url }: Answer, start: number, end: number, { size }: Piece) {
  checkEncoding(response, url);
  const header = response.headers.get("content-range") ?? "";
  const match = /^bytes (\d{1,20})-(\d{1,20})\/(\d{1,20}|\*)$/.exec(header);
  const wrong = () => new Transient(`${url.host} sends ${quote(header)} for bytes ${start}-${end - 1}`);
  if (response.status !== 206 || !match) throw wrong();
  const [from, last] = [Number(match[1]), Number(match[2])];
  const total = match[3] === "*" ? size : lengthOf(match[3], url);
  if (total === undefined || from !== start || last < from || last >= end || last >= total) throw wrong();
  const length = response.headers.get("content-length");
  if (length !== null && lengthOf(length, url) !== last + 1 - from) throw wrong();
  return { end: last + 1, total };
}

function lengthOf(text: string, url: URL): number {
  const length = Number(text);
  if (Number.isSafeInteger(length) && length > 0) return length;
  throw new Transient(`${url.host} says that the file has ${quote(text)} bytes`);
}

/** Throws for a compressed response, because its bytes differ from the file's. */
function checkEncoding({ headers }: Response, url: URL): void {
  const encoding = headers.get("content-encoding");
  if (encoding === null || encoding === "identity") return;
  throw new Transient(`${url.host} compresses the file (${quote(encoding)}), which was not requested`);
}
