import { worded, type Words } from "../engine/api/errors.ts";

/** Returns a size in powers of ten: `4.3 GB`. */
export function size(bytes: number): string {
  const [unit, name] = bytes >= 1e9 ? [1e9, "GB"] : bytes >= 1e6 ? [1e6, "MB"] : [1e3, "kB"];
  return `${(bytes / (unit as number)).toFixed(1)} ${name}`;
}

/** Returns a count in words: `1 core`, `2 cores`. */
export function counted(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? "" : "s"}`;
}

/**
 * Returns an error's message with its settings worded by `words`, and without control characters from untrusted names.
 */
export function reasonOf(error: unknown, words?: Words): string {
  return worded(error, words).replace(/[^\P{Cc}\n]/gu, "?");
}
