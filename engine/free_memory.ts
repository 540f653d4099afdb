/** What the system says about memory, in bytes. */
export interface MemoryFigures {
  /** Of the whole machine: what programs can still get, the file cache included. */
  readonly available: number;
  /** The most that this process's control group may hold; huge where there is no limit, 0 where it cannot be read. */
  readonly limit: number;
  /** What this process holds. */
  readonly resident: number;
}

/** The share of the free memory that is left to the rest of the program and of the machine, and its upper bound. */
const KEPT_SHARE = 0.1;
const MOST_KEPT = 2 ** 30;

/** Bytes that a model may take here: the free memory but for a reserve; undefined where nobody can say. */
export function freeMemory(figures: MemoryFigures | undefined = systemFigures()): number | undefined {
  if (figures === undefined) return undefined;
  const { available, limit, resident } = figures;
  const free = limit === 0 ? available : Math.max(0, Math.min(available, limit - resident));
  return Math.floor(free - Math.min(MOST_KEPT, KEPT_SHARE * free));
}

/**
 * Linux only: elsewhere the figures leave out what the system would compress or give up. Undefined without the permission
 * too, which is not asked for.
 */
function systemFigures(): MemoryFigures | undefined {
  if (globalThis.process?.platform !== "linux") return undefined; // a browser has no process
  const permitted = typeof Deno === "undefined" ||
    Deno.permissions.querySync({ name: "sys", kind: "systemMemoryInfo" }).state === "granted";
  if (!permitted) return undefined;
  return {
    available: process.getBuiltinModule("node:os").freemem(), // MemAvailable
    limit: process.constrainedMemory(), // of version 1 and 2; Deno lets nobody read these files without all permissions
    resident: process.memoryUsage().rss,
  };
}
