/** Memory figures from the operating system, in bytes. */
export interface MemoryFigures {
  /** Memory of the whole machine that programs can still get, including the file cache. */
  readonly available: number;
  /** Memory limit of this process's control group: huge when there is no limit, 0 when it cannot be read. */
  readonly limit: number;
  /** Resident memory of this process. */
  readonly resident: number;
}

/** Share of the free memory that is left to other programs, and its upper bound in bytes. */
const KEPT_SHARE = 0.1;
const MOST_KEPT = 2 ** 30;

/** Returns the bytes that a model may take: free memory minus a reserve. Undefined when unknown. */
export function freeMemory(figures: MemoryFigures | undefined = systemFigures()): number | undefined {
  if (figures === undefined) return undefined;
  const { available, limit, resident } = figures;
  const free = limit === 0 ? available : Math.max(0, Math.min(available, limit - resident));
  return Math.floor(free - Math.min(MOST_KEPT, KEPT_SHARE * free));
}

/**
 * Returns memory figures on Linux; undefined without the permission (no prompt) and on other systems, whose figures
 * omit memory that the system could release.
 */
function systemFigures(): MemoryFigures | undefined {
  if (globalThis.process?.platform !== "linux") return undefined; // a browser has no process
  const permitted = typeof Deno === "undefined" ||
    Deno.permissions.querySync({ name: "sys", kind: "systemMemoryInfo" }).state === "granted";
  if (!permitted) return undefined;
  return {
    available: process.getBuiltinModule("node:os").freemem(), // `MemAvailable` of /proc/meminfo
    limit: process.constrainedMemory(), // control groups v1 and v2; Deno reads these files only with all permissions
    resident: process.memoryUsage().rss,
  };
}
