import { escapedMessage, EscapedStream } from "./escape.ts";
import { asCalled } from "./start.ts";

const encoder = new TextEncoder();

/** Standard output that is being captured; undefined otherwise. */
let capture: string[] | undefined;

export interface Style {
  /** Whether a terminal shows the text dimmed, unless NO_COLOR is set. */
  readonly dimmed?: boolean;
  /** Whether a terminal receives control characters as they are. */
  readonly raw?: boolean;
}

const onTerminal = new EscapedStream();

/**
 * Writes to standard output. A terminal shows control characters escaped; a pipe or file receives the exact
 * text. Throws Deno.errors.BrokenPipe if the reader is gone.
 */
export function out(text: string, { dimmed = false, raw = false }: Style = {}): void {
  if (capture) {
    capture.push(text);
    return;
  }
  if (!Deno.stdout.isTerminal()) return write(Deno.stdout, text);
  const shown = raw ? text : onTerminal.next(text);
  write(Deno.stdout, dimmed && shown !== "" && !Deno.noColor ? `${DIM}${shown}${PLAIN}` : shown);
}

/** Returns the text that a command would write to standard output. */
export async function captured(command: () => Promise<unknown>): Promise<string> {
  const before = capture;
  const texts: string[] = capture = [];
  try {
    await command();
  } finally {
    capture = before;
  }
  return texts.join("");
}

/** Log levels of standard error: `error` shows only failures; `debug` also shows each answered request. */
export const LOG_LEVELS = ["error", "warning", "info", "debug"] as const;
export type LogLevel = typeof LOG_LEVELS[number];

let logged: LogLevel = "info";

/** Sets the log level; messages of lower levels are no longer printed. */
export function setLogLevel(level: LogLevel): void {
  logged = level;
}

export function logLevel(): LogLevel {
  return logged;
}

/** Returns whether messages of this level are printed. */
export function logs(level: LogLevel): boolean {
  return LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(logged);
}

/** Prints a line on standard error if its level is logged. */
export function note(message: string, level: LogLevel = "info"): void {
  if (logs(level)) err(`${message}\n`);
}

/** Different messages that are passed on in a day, of all senders and of each. Requests of strangers decide some. */
const MOST_MESSAGES = 1000;
const MOST_OF_SENDER = 50;
const DAY_MS = 86_400_000;

/**
 * Returns a function that passes each message to `tell` once a day. Each sender has a maximum of different messages,
 * so that no sender uses up the messages about others' requests.
 */
export function once(
  tell: (message: string) => void,
  now: () => number = () => performance.now(),
): (message: string, sender?: string) => void {
  const told = new Set<string>();
  const counts = new Map<string | undefined, number>();
  let began = now();
  return (message, sender) => {
    if (now() - began > DAY_MS) {
      told.clear();
      counts.clear();
      began = now();
    }
    const most = sender === undefined ? MOST_MESSAGES : MOST_OF_SENDER;
    const count = counts.get(sender) ?? 0;
    if (told.has(message) || told.size > MOST_MESSAGES || count > most) return;
    told.add(message);
    counts.set(sender, count + 1);
    if (told.size <= MOST_MESSAGES && count < most) return tell(message);
    const about = told.size > MOST_MESSAGES ? "" : ` about requests of ${sender}`;
    tell(`There were too many different warnings${about}; no others are shown today`);
  };
}

/**
 * Writes a message with a line end, or a part of one, to standard error. Control characters are escaped, and line
 * ends within it unless the next line is indented, so that no text can forge another message. Commands in the
 * text take the form in which the user called this one. A missing reader, a terminal that has hung up or a full
 * disk must not stop the process.
 */
export function err(text: string): void {
  const end = text.endsWith("\n") ? "\n" : "";
  try {
    write(Deno.stderr, escapedMessage(asCalled(text.slice(0, text.length - end.length))) + end);
  } catch {
    // No output is left to report this.
  }
}

/** Whether a progress line is on the terminal. The next text replaces it. */
let isDrawn = false;

/**
 * Draws a progress line on standard error's terminal in place of the previous one. An empty text removes it.
 */
export function drawLine(text: string): void {
  if (text === "" && !isDrawn) return;
  err(text);
  isDrawn = text !== "";
}

function write(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  if (isDrawn) {
    isDrawn = false;
    write(Deno.stderr, "\r\x1b[K");
  }
  const bytes = encoder.encode(text);
  for (let done = 0; done < bytes.length;) done += stream.writeSync(bytes.subarray(done));
}

const DIM = "\x1b[2m";
const PLAIN = "\x1b[0m";

/** Minimum milliseconds of a wait that gets a progress line. */
const PATIENCE_MS = 300;
const REDRAW_MS = 100;

/**
 * A progress line that is redrawn on standard error's terminal; without a terminal it draws nothing. `done`
 * removes it.
 */
export class ProgressLine {
  readonly #active = Deno.stderr.isTerminal() && logs("info");
  #next = performance.now() + PATIENCE_MS;

  constructor(private readonly what: string) {}

  /** Draws the share `done` of `total`, followed by `detail`. */
  update(done: number, total: number, detail = ""): void {
    const now = performance.now();
    if (!this.#active || now < this.#next) return;
    this.#next = now + REDRAW_MS;
    const share = `${Math.floor(100 * done / Math.max(total, 1))} %`;
    drawLine(`${this.what} ${share}${detail && ` (${detail})`}`);
  }

  done(): void {
    if (this.#active) drawLine("");
  }
}

/**
 * Whether the process was started on a terminal, which can hang up. Read once, because a terminal that has hung up no
 * longer counts as one.
 */
export const isOnTerminal = [Deno.stdin, Deno.stdout, Deno.stderr].some((stream) => stream.isTerminal());

/**
 * Calls the handler on every Ctrl-C and SIGTERM, and when the terminal hangs up, instead of ending the process, until
 * the returned function is called. One Ctrl-C can arrive twice: from the terminal and from the task runner. Without a
 * terminal the handling of SIGHUP stays as it is, because nohup may have turned the signal off.
 */
export function onInterrupt(handler: () => void): () => void {
  const signals: Deno.Signal[] = ["SIGINT"];
  if (Deno.build.os !== "windows") signals.push("SIGTERM");
  if (isOnTerminal) signals.push("SIGHUP");
  for (const signal of signals) Deno.addSignalListener(signal, handler);
  return () => {
    for (const signal of signals) Deno.removeSignalListener(signal, handler);
  };
}
