import { readFile, rename, writeFile } from "node:fs/promises";
import { errorCode } from "../errors.ts";
import type { BatchProgress } from "./runner.ts";
import { diskStorage } from "../journal/storage.ts";

/*
 * Files beside the output that let other processes follow and stop a running job. OUT.jsonl.status holds its progress
 * and is rewritten while it runs; the journal stays the record. OUT.jsonl.cancel asks the job to end.
 */

/** The progress of a running job, as its process last wrote it to the status file. */
export interface LiveStatus {
  readonly progress: BatchProgress;
  readonly promptRate: number;
  readonly outputRate: number;
  /** Seconds; null while unknown. */
  readonly remaining: number | null;
}

export function statusPath(output: string): string {
  return `${output}.status`;
}

export function cancelPath(output: string): string {
  return `${output}.cancel`;
}

/**
 * Replaces the whole status file by a rename, so that no reader sees half of it. Ignores failures: the file is
 * optional.
 */
export async function writeStatus(output: string, status: LiveStatus): Promise<void> {
  const path = statusPath(output);
  try {
    await writeFile(`${path}.partial`, JSON.stringify(status));
    await rename(`${path}.partial`, path);
  } catch {
    // The job itself reports a full disk.
  }
}

/** Returns the status, or undefined when the file is missing or is not JSON. */
export async function readStatus(output: string): Promise<LiveStatus | undefined> {
  try {
    return JSON.parse(await readFile(statusPath(output), "utf8"));
  } catch (error) {
    if (errorCode(error) === "ENOENT" || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

export async function removeStatus(output: string): Promise<void> {
  for (const path of [statusPath(output), `${statusPath(output)}.partial`]) await diskStorage.remove(path);
}

/** Asks the process that runs the job now, or the next one that runs it, to end it. */
export async function requestCancel(output: string): Promise<void> {
  await writeFile(cancelPath(output), "");
}

export async function isCancelRequested(output: string): Promise<boolean> {
  return await diskStorage.stat(cancelPath(output)) !== undefined;
}

export function forgetCancel(output: string): Promise<void> {
  return diskStorage.remove(cancelPath(output));
}
