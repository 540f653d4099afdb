/** Limits of Linux control groups for this process, versions 1 and 2. */

export interface CpuLimit {
  /** Limit of CPU time in cores; may be a fraction. */
  readonly cores: number;
  /** Path of the file that states the limit. */
  readonly where: string;
}

type ReadText = (path: string) => Promise<string | undefined>;

const ROOT = "/sys/fs/cgroup";

/** Returns the lowest CPU limit of this process's group and its parents; undefined if there is none. */
export async function cpuLimit(readText: ReadText): Promise<CpuLimit | undefined> {
  const groups = await readText("/proc/self/cgroup");
  if (groups === undefined) return undefined;
  const limits: CpuLimit[] = [];
  for (const line of groups.split("\n")) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    const mount = controllers === "" ? ROOT : `${ROOT}/${controllers}`;
    if (controllers !== "" && !controllers.split(",").includes("cpu")) continue;
    for (const folder of ancestors(path)) {
      const limit = controllers === ""
        ? await ofVersion2(readText, `${mount}${folder}`)
        : await ofVersion1(readText, `${mount}${folder}`);
      if (limit !== undefined) limits.push(limit);
    }
  }
  return limits.sort((a, b) => a.cores - b.cores)[0];
}

/** Returns a path with its ancestors: `/a/b`, `/a` and "" for `/a/b`. */
function ancestors(path: string): string[] {
  const names = path.split("/").filter((name) => name !== "");
  return Array.from(
    { length: names.length + 1 },
    (_, i) => names.slice(0, names.length - i).map((n) => `/${n}`).join(""),
  );
}

/** Returns the CPU limit in cpu.max: `50000 100000` is half a core, `max 100000` is unlimited. */
async function ofVersion2(readText: ReadText, folder: string): Promise<CpuLimit | undefined> {
  const where = `${folder}/cpu.max`;
  const [quota, period] = (await readText(where))?.trim().split(" ").map(Number) ?? [];
  return quota > 0 && period > 0 ? { cores: quota / period, where } : undefined;
}

async function ofVersion1(readText: ReadText, folder: string): Promise<CpuLimit | undefined> {
  const where = `${folder}/cpu.cfs_quota_us`;
  const quota = Number(await readText(where) ?? NaN);
  const period = Number(await readText(`${folder}/cpu.cfs_period_us`) ?? NaN);
  return quota > 0 && period > 0 ? { cores: quota / period, where } : undefined;
}
