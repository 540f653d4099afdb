import { statfs } from "node:fs/promises";
import { dirname } from "@std/path";
import { PullError } from "./errors.ts";

/** Returns the number of bytes that may be written to a folder; undefined if unknown. */
export type FreeSpace = (folder: string) => Promise<number | undefined>;

/** Bytes of disk to leave free for other programs when a download begins. */
const RESERVE = 64 * 2 ** 20;

/**
 * Returns the bytes that this user may still write to the folder's disk; undefined without the permission to
 * ask.
 */
export async function freeBytes(folder: string): Promise<number | undefined> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return Number(bavail) * Number(bsize);
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}

/** Throws PullError if `needed` more bytes do not fit on the disk. */
export async function checkSpace(folder: string, needed: number, free: FreeSpace = freeBytes): Promise<void> {
  const there = await free(folder);
  if (there === undefined || needed === 0 || needed + RESERVE <= there) return;
  throw new PullError(
    "PULL_DISK",
    `Not enough space in "${folder}": ${gigabytes(needed)} are still to come, and ${
      gigabytes(there)
    } are free ` +
      `(${gigabytes(RESERVE)} of them are kept); nothing was downloaded`,
  );
}

export function gigabytes(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Returns a helpful error for a full disk; other errors unchanged. */
export function describeDiskError(error: unknown, folder: string): unknown {
  if (!isDiskFull(error)) return error;
  return new PullError(
    "PULL_DISK",
    `The disk of "${folder}" is full; what was downloaded is kept: free some space, and the same command resumes`,
    { cause: error },
  );
}

function isDiskFull(error: unknown): boolean {
  return error instanceof Error && /os error (28|122)\b|ENOSPC|EDQUOT/.test(error.message);
}

/** Writes a small file atomically. */
export async function writeWhole(path: string, text: string): Promise<void> {
  const next = `${path}.next`;
  {
    using file = await Deno.open(next, { write: true, create: true, truncate: true });
    const bytes = new TextEncoder().encode(text);
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    await file.syncData();
  }
  await Deno.rename(next, path);
  await syncFolder(dirname(path));
}

/** Makes renames in a folder durable. */
export async function syncFolder(folder: string): Promise<void> {
  if (Deno.build.os === "windows") return; // Windows cannot open folders
  using opened = await Deno.open(folder);
  await opened.sync();
}
