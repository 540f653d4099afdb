import { DiskFolder, type Listed, LOCK } from "./folder.ts";
import { isOwn, isPart } from "./store.ts";

/** Contents of a prompt cache folder. */
export interface CacheReport {
  /** Number of stored KV blocks and recurrent states, and their bytes. */
  readonly parts: number;
  readonly bytes: number;
  /** Last use of the least and most recently used part, in milliseconds since 1970. */
  readonly oldest: number | undefined;
  readonly newest: number | undefined;
  /** Whether a process is writing to the cache folder. */
  readonly inUse: boolean;
}

/** Returns the contents of a prompt cache folder without changing it. Throws if the folder cannot be read. */
export async function reportCache(path: string): Promise<CacheReport> {
  const folder = new DiskFolder(path);
  const files = await folder.list();
  const inUse = files.some(({ name }) => name === LOCK) && !await folder.lock();
  folder.unlock();
  return report(files, inUse);
}

/** Removes all prompts from a folder, and the folder if it is empty then. Throws if a process uses it. */
export async function wipeCache(path: string): Promise<CacheReport> {
  const folder = new DiskFolder(path);
  const files = await folder.list();
  const own = files.filter(({ name }) => isOwn(name));
  if (own.length > 0 && !await folder.lock()) {
    throw new Error(`Cannot wipe "${path}": a server or a job uses it; stop that first`);
  }
  for (const { name } of own) await folder.remove(name);
  folder.unlock();
  if (own.length > 0 && own.length === files.length) {
    await Deno.remove(path).catch(() => {}); // it may contain folders
  }
  return report(files, false);
}

function report(files: readonly Listed[], inUse: boolean): CacheReport {
  const parts = files.filter(({ name }) => isPart(name));
  const times = parts.map(({ usedAt }) => usedAt).sort((a, b) => a - b);
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  return { parts: parts.length, bytes, oldest: times[0], newest: times.at(-1), inUse };
}
