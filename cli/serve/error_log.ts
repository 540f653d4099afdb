import { worded } from "../../engine/api/errors.ts";
import { SHORTAGES } from "../../lib/system_errors.ts";
import { err } from "../shared/terminal.ts";
import { asFlags } from "../shared/words.ts";

/** Codes of ServiceError, by BatchError codes with the same cause. */
const SAME: Readonly<Record<string, string>> = {
  storage_full: "ENOSPC",
  disk_full: "ENOSPC",
  no_descriptors: "EMFILE",
};
const MINUTE_MS = 60_000;

export interface ErrorLogOptions {
  readonly write?: (line: string) => void;
  /** Calls the function after a minute. */
  readonly later?: (work: () => void) => void;
}

/**
 * Returns a function that reports errors to the operator. A cause such as a full disk, which fails many requests,
 * gets one line without a stack. An unexpected error gets its stack. While the same error repeats, one line a minute
 * says how often.
 */
export function errorLog(
  { write = err, later = inAMinute }: ErrorLogOptions = {},
): (error: unknown) => void {
  const told = new WeakSet<Error>();
  /** Number of errors since the last line, by cause or stack. */
  const repeated = new Map<string, { count: number; last: string }>();
  const wait = (key: string) =>
    later(() => {
      const { count, last } = repeated.get(key)!;
      repeated.delete(key);
      if (count === 0) return;
      write(`${count} more in the last minute, the last one: ${last}\n`);
      repeated.set(key, { count: 0, last });
      wait(key);
    });
  return (error) => {
    if (error instanceof Error) {
      // One failure can end many requests, so it is reported once.
      if (told.has(error)) return;
      told.add(error);
    }
    const { key, line, text = line } = described(error);
    const before = repeated.get(key);
    if (before !== undefined) {
      before.count++;
      before.last = line;
      return;
    }
    write(`${text}\n`);
    repeated.set(key, { count: 0, last: line });
    wait(key);
  };
}

/** Calls `work` after a minute, without keeping the process alive. */
function inAMinute(work: () => void): void {
  Deno.unrefTimer(setTimeout(work, MINUTE_MS));
}

/**
 * Returns an error for the log. `line`: the error in one line; `text`: with its stack, if the stack helps the operator.
 */
function described(error: unknown): { key: string; line: string; text?: string } {
  if (!(error instanceof Error)) return { key: `${error}`, line: `${error}` };
  const line = `Error: ${worded(error, asFlags)}`;
  const cause = causeOf(error);
  if (cause !== undefined) return { key: cause, line: `${line} (${SHORTAGES[cause]})` };
  const text = traced(error);
  return { key: text, line, text };
}

/** Returns the system code of an error's cause, if SHORTAGES has it. */
function causeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  const deeper = causeOf(cause);
  if (deeper !== undefined || typeof code !== "string") return deeper;
  return Object.hasOwn(SHORTAGES, code) ? code : SAME[code];
}

/** Returns an error's stack with those of its causes. */
function traced(error: Error): string {
  const { stack, message, cause } = error;
  const own = `${stack}`.replace(message, () => worded(error, asFlags));
  return cause instanceof Error ? `${own}\n  Caused by ${traced(cause)}` : own;
}
