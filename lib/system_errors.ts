import { worded, type Words } from "../engine/api/errors.ts";

/** Reasons of system errors that the machine's operator can fix, by system code. */
export const SHORTAGES: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota of this user is used up",
  EFBIG: "the file is too large (ulimit -f)",
  EROFS: "the disk is read-only",
  EIO: "the disk fails",
  EMFILE: "this process has too many files open (ulimit -n)",
  ENFILE: "the system has too many files open",
};
/** Reasons of file errors in words, by Deno's error names and by the system's codes. */
const REASONS: Readonly<Record<string, string>> = {
  ...SHORTAGES,
  NotFound: "there is no such file or folder",
  ENOENT: "there is no such file or folder",
  NotADirectory: "a part of its path is a file and not a folder",
  ENOTDIR: "a part of its path is a file and not a folder",
  IsADirectory: "it is a folder",
  EISDIR: "it is a folder",
  FilesystemLoop: "its symbolic links lead in a circle",
  ELOOP: "its symbolic links lead in a circle",
  PermissionDenied: "permission denied: this user may not do that",
  EACCES: "permission denied: this user may not do that",
  AlreadyExists: "something else of that name is there",
  EEXIST: "something else of that name is there",
};
/** Pattern of paths that Deno opens only with all permissions. Deno's advice to grant them is left out of messages. */
const SPECIAL_FILE =
  "tasks may not open devices, pipes and files of the system; copy it to an ordinary file first";

/** Returns the reason why the system refused a file, without codes and calls; undefined for other errors. */
export function systemReason(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (error.name === "NotCapable" && error.message.includes("--allow-all")) return SPECIAL_FILE;
  const { code } = error as { code?: unknown };
  const known = REASONS[error.name] ?? (typeof code === "string" ? REASONS[code] : undefined);
  if (known) return known;
  const said = /^(.+?) \(os error \d+\)/.exec(error.message)?.[1] ??
    /^E[A-Z0-9]+: (.+?), \w+( |$)/.exec(error.message)?.[1];
  return said && said[0].toLowerCase() + said.slice(1);
}

/** Returns an error's message with its settings worded by `words`. In a system error, Deno puts the path at the end. */
export function messageOf(error: Error, words?: Words): string {
  const reason = systemReason(error);
  const path = /['"]([^'"]+)['"](, run again.*)?$/.exec(error.message)?.[1];
  return reason === undefined || path === undefined
    ? worded(error, words)
    : `Cannot use "${path}": ${reason}`;
}

/** Returns a system error with `what` before its reason; other errors unchanged. */
export function explained(what: string, error: unknown, advice = ""): unknown {
  const reason = systemReason(error);
  return reason === undefined
    ? error
    : new Error(`${what}: ${reason}${advice && `; ${advice}`}`, { cause: error });
}
