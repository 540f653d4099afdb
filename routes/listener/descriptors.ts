/**
 * Returns how many file descriptors this process can still open, at most `most`. It opens the readable file `path`
 * until the system refuses, then closes all again. The permissions do not include the files with the system's limits.
 * Call it while nothing else opens files.
 */
export function freeDescriptors(path: string, most: number): number {
  const open: Deno.FsFile[] = [];
  try {
    while (open.length < most) open.push(Deno.openSync(path));
  } catch (error) {
    if (!isShortage(error)) throw error;
  } finally {
    for (const file of open) file.close();
  }
  return open.length;
}

/** Returns true when the process (EMFILE) or the system (ENFILE) has no file descriptors left. */
export function isShortage(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "EMFILE" || code === "ENFILE";
}
