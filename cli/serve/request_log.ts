import { quoted } from "../shared/start.ts";
import type { LogEntry } from "../../lib/serving.ts";
import { explained, messageOf } from "../../lib/system_errors.ts";
import { jsonLine } from "../shared/escape.ts";

/** The destination of log lines. */
interface Sink {
  /** Writes some of the bytes and returns their number. */
  write(bytes: Uint8Array): Promise<number>;
  close(): void;
}

export interface RequestLogOptions {
  /** Opens the destination; called again after a failure and on `reopen`. */
  readonly open: () => Sink;
  /** Reports failures, each kind once until it has passed. */
  readonly note: (message: string) => void;
  /** Maximum bytes of waiting lines. Further lines are dropped and counted. */
  readonly maxWaiting?: number;
  /** Milliseconds between a failure and the next attempt. */
  readonly retryMs?: number;
}

const MAX_WAITING = 4 * 2 ** 20;
const RETRY_MS = 1000;
const NEWLINE = 0x0a;

const utf8 = new TextEncoder();

/**
 * The log of requests as JSON lines. Requests do not wait for it: lines are written in the background, in
 * order. If they cannot be written, lines beyond a limit are dropped. A line then gives their number:
 * `{"time", "dropped"}`.
 */
export class RequestLog {
  readonly #options: Required<RequestLogOptions>;
  #sink: Sink | undefined;
  #waiting: string[] = [];
  /** The lines that are being written; the waiting lines follow later. */
  #batch = new Uint8Array();
  /** Number of characters in lines that are not yet written. */
  #unwritten = 0;
  #dropped = 0;
  #writing: Promise<void> | undefined;
  #isToReopen = false;
  #hasFailed = false;
  #isClosed = false;
  #retry: ReturnType<typeof setTimeout> | undefined;

  /** Opens the log. Throws if it cannot be opened. */
  constructor(options: RequestLogOptions) {
    this.#options = { maxWaiting: MAX_WAITING, retryMs: RETRY_MS, ...options };
    this.#sink = options.open();
  }

  add(entry: LogEntry): void {
    const line = jsonLine(entry);
    if (this.#unwritten + line.length > this.#options.maxWaiting) {
      this.#dropped++;
      return;
    }
    this.#waiting.push(line);
    this.#unwritten += line.length;
    if (this.#retry === undefined) this.#wake();
  }

  /** Opens the log file again, because the old file was moved away. */
  reopen(): void {
    this.#isToReopen = true;
    this.#wake();
  }

  /** Writes the waiting lines if possible, and closes the log. */
  async close(): Promise<void> {
    while (this.#writing) await this.#writing;
    this.#isClosed = true; // one last attempt, then no more
    this.#wake();
    while (this.#writing) await this.#writing;
    this.#sink?.close();
  }

  #wake(): void {
    clearTimeout(this.#retry);
    this.#retry = undefined;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      const hasMore = this.#waiting.length > 0 && this.#retry === undefined && !this.#isClosed;
      if (hasMore || this.#isToReopen) this.#wake(); // lines that arrived while this method was ending
    });
  }

  /** Writes all waiting lines. Never rejects: failed writes are tried again later. */
  async #writeAll(): Promise<void> {
    await Promise.resolve(); // collects the lines of this event-loop turn
    try {
      for (let more = true; more; more = this.#next()) {
        if (this.#isToReopen) this.#leaveFile();
        this.#sink ??= this.#options.open();
        while (this.#batch.length > 0) {
          this.#batch = this.#batch.subarray(await this.#sink.write(this.#batch));
        }
      }
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    if (this.#hasFailed) this.#options.note("The log of requests can be written again");
    this.#hasFailed = false;
  }

  /** Takes the waiting lines when the earlier ones are written. Returns false if there are none. */
  #next(): boolean {
    this.#unwritten = this.#waiting.reduce((sum, line) => sum + line.length, 0);
    if (this.#waiting.length === 0 && this.#dropped === 0) return this.#isToReopen;
    if (this.#dropped > 0) {
      this.#waiting.push(jsonLine({ time: new Date().toISOString(), dropped: this.#dropped }));
    }
    this.#batch = utf8.encode(this.#waiting.join(""));
    this.#waiting = [];
    this.#dropped = 0;
    return true;
  }

  /** Drops a line that is partly in the old file, so that the new file does not continue it. */
  #leaveFile(): void {
    this.#isToReopen = false;
    this.#sink?.close();
    this.#sink = undefined;
    if (this.#isTorn) {
      this.#batch = this.#batch.subarray(this.#batch.indexOf(NEWLINE) + 1);
      this.#dropped++;
    }
  }

  /** Whether the next byte to write lies within a line. */
  get #isTorn(): boolean {
    const { buffer, byteOffset, length } = this.#batch;
    return length > 0 && byteOffset > 0 && new Uint8Array(buffer)[byteOffset - 1] !== NEWLINE;
  }

  #fail(error: Error): void {
    if (!this.#hasFailed) {
      this.#options.note(
        `Cannot write the log of requests: ${messageOf(error)}; lines beyond the buffer are dropped`,
      );
    }
    this.#hasFailed = true;
    if (!this.#isClosed) this.#retry = setTimeout(() => this.#wake(), this.#options.retryMs);
  }
}

/** Opens the log for appending to a file; `-` is standard output. Throws if the file cannot be opened. */
export function openRequestLog(path: string, note: (message: string) => void): RequestLog {
  return new RequestLog({ open: () => path === "-" ? STDOUT : opened(path), note });
}

const STDOUT: Sink = { write: (bytes) => Deno.stdout.write(bytes), close() {} };

function opened(path: string): Sink {
  try {
    return Deno.openSync(path, { append: true, create: true, mode: 0o600 });
  } catch (error) {
    const what = `Cannot write the log of requests to "${path}"`;
    if (!(error instanceof Deno.errors.NotCapable)) {
      throw explained(what, error, "name another file with --log");
    }
    throw new Error(
      `${what}: this task may write to .compy only. Allow it with deno run -P=serve --allow-write=${
        quoted(path)
      } ` +
        `main.ts serve --log ${quoted(path)}`,
    );
  }
}
