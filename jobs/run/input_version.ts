import { checkInput, inputChanged, type InputCheck, type InputLimits } from "../check.ts";
import { ioError } from "../errors.ts";
import type { JobInput } from "../input.ts";
import type { Storage } from "../journal/storage.ts";

/** Returns the file's `storage.stat`. Throws BatchError. */
export async function statOf(storage: Storage, path: string) {
  try {
    return await storage.stat(path);
  } catch (error) {
    throw ioError(`look at "${path}"`, error);
  }
}

interface CheckedInput {
  readonly name: string;
  readonly open: () => Promise<JobInput>;
  /** The file's `version` by `storage.stat` before the check. */
  readonly version: string | undefined;
  readonly check: InputCheck;
  readonly limits: InputLimits;
  readonly signal: AbortSignal;
}

/**
 * Throws BatchError if the file's content is not the checked one. A running job itself only notices changes of lines
 * that it has not read yet. The file is read again only if its version differs.
 */
export async function checkUnchanged(storage: Storage, input: CheckedInput): Promise<void> {
  const { name, open, version, check, limits, signal } = input;
  const found = await statOf(storage, name);
  // The answers belong to the previous content of the file.
  if (found === undefined || found.version === version) return;
  const now = await open();
  try {
    const { identity } = await checkInput(now, name, limits, () => {}, { signal });
    if (identity !== check.identity) throw inputChanged(name);
  } finally {
    now.close();
  }
}
