import { asCalled } from "./start.ts";

const encoder = new TextEncoder();

/** What standard output is given, while it is captured. */
let capture: string[] | undefined;

/** Writes to standard output. Throws Deno.errors.BrokenPipe where the reader has gone. */
export function out(text: string): void {
  if (capture) capture.push(text);
  else write(Deno.stdout, text);
}

/** What a command would write to standard output. */
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

/** What is told on standard error: with `error` nothing but failures, with `debug` each request that a server has answered. */
export const LOG_LEVELS = ["error", "warning", "info", "debug"] as const;
export type LogLevel = typeof LOG_LEVELS[number];

let logged: LogLevel = "info";

/** From now on, what is of a lower level is not told. */
export function setLogLevel(level: LogLevel): void {
  logged = level;
}

export function logLevel(): LogLevel {
  return logged;
}

/** Whether what is of this level is told. */
export function logs(level: LogLevel): boolean {
  return LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(logged);
}

/** A line on standard error, where its level is told. */
export function note(message: string, level: LogLevel = "info"): void {
  if (logs(level)) err(`${message}\n`);
}

/** Writes to standard error, where people read; commands in the text are called as the user called this one. Nobody reading there is no reason to stop. */
export function err(text: string): void {
  try {
    write(Deno.stderr, asCalled(text));
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

/** Whether a line of progress stands on the terminal, which the next text takes the place of. */
let isDrawn = false;

/** Draws a line of progress on a terminal's standard error, in the place of the one before; an empty one takes it away. */
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

export const DIM = "\x1b[2m";
export const PLAIN = "\x1b[0m";

/** Set off from the rest, where standard output is a terminal whose user has not said NO_COLOR. */
export function dim(text: string): string {
  return Deno.stdout.isTerminal() && !Deno.noColor ? `${DIM}${text}${PLAIN}` : text;
}

/** Below this, a wait needs no explanation. */
const PATIENCE_MS = 300;
const REDRAW_MS = 100;

/**
 * One line of progress on a terminal's standard error, drawn in place; nothing where that is no terminal.
 * `done` takes it away.
 */
export class ProgressLine {
  readonly #active = Deno.stderr.isTerminal() && logs("info");
  #next = performance.now() + PATIENCE_MS;

  constructor(private readonly what: string) {}

  /** `detail` stands behind the share. */
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
 * Calls the handler on every Ctrl-C and SIGTERM from now on, instead of ending the process, until the
 * function that it returns is called. One Ctrl-C can come twice:
 * from the terminal, and through the task runner.
 */
export function onInterrupt(handler: () => void): () => void {
  const signals: Deno.Signal[] = Deno.build.os === "windows" ? ["SIGINT"] : ["SIGINT", "SIGTERM"];
  for (const signal of signals) Deno.addSignalListener(signal, handler);
  return () => {
    for (const signal of signals) Deno.removeSignalListener(signal, handler);
  };
}
