/**
 * How many file descriptors this process can still open, at most `most`: opens `path`, a file that can be read, until the
 * system refuses, and closes all again. The limit itself stands in files that permissions do not reach, and what the
 * process already uses would have to be known beside it. Call it while nothing else opens files.
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

/** Whether the process (EMFILE) or the system (ENFILE) has no file descriptors left. */
export function isShortage(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "EMFILE" || code === "ENFILE";
}
