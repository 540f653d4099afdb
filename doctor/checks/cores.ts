import { type CpuLimit, cpuLimit } from "../control_group.ts";
import type { Finding, Wanted, World } from "../types.ts";
import { counted } from "../units.ts";

type CoresWorld = Pick<World, "threads" | "load" | "readText">;

/** Checks the number of cores, the number that this process may use, and their load. */
export async function checkCores(world: CoresWorld, wanted: Wanted): Promise<Finding> {
  const cpus = readCpus(await world.readText("/proc/cpuinfo"));
  const limit = await cpuLimit((path) => world.readText(path));
  const load = world.load();
  const threads = wanted.threads ?? Math.min(cpus?.physical ?? world.threads, world.threads);
  const problem = problemOf({ usable: world.threads, threads, limit, load, logical: cpus?.logical });
  return {
    status: problem === undefined ? "ok" : "slow",
    found: [
      ...(cpus === undefined ? [`${counted(world.threads, "logical core")}`] : [
        `${cpus.model ?? "CPU"} with ${counted(cpus.physical, "physical core")}, ${cpus.logical} logical`,
      ]),
      `${counted(threads, "thread")} will compute`,
      ...(limit === undefined ? [] : [`a control group allows ${limit.cores.toFixed(1)} cores`]),
      ...(load === undefined ? [] : [`load ${load.toFixed(1)}`]),
    ].join("; "),
    ...problem,
    figures: {
      ...cpus,
      usable: world.threads,
      threads,
      ...(limit && { allowed: limit.cores }),
      ...(load !== undefined && { load }),
    },
  };
}

interface Cores {
  readonly usable: number;
  readonly threads: number;
  readonly limit: CpuLimit | undefined;
  readonly load: number | undefined;
  readonly logical: number | undefined;
}

function problemOf({ usable, threads, limit, load, logical }: Cores): { advice: string } | undefined {
  if (threads > usable) {
    return {
      advice: `${threads} threads take turns on ${
        counted(usable, "core")
      }; leave --threads out, or give ${usable}`,
    };
  }
  if (limit !== undefined && logical !== undefined && limit.cores < logical) {
    return {
      advice:
        `the limit is in ${limit.where}; raise it (systemd's CPUQuota=, Docker's --cpus) if all of the machine ` +
        "is meant for compy",
    };
  }
  if (load !== undefined && load > usable) {
    return { advice: "other programs are computing; kernels wait for the slowest of their threads" };
  }
  return undefined;
}

interface Cpus {
  readonly physical: number;
  readonly logical: number;
  readonly model?: string;
}

/** Returns the cores in /proc/cpuinfo. If it names none (arm64), each processor counts as one. */
function readCpus(text: string | undefined): Cpus | undefined {
  if (text === undefined) return undefined;
  const processors = text.split(/\n\n+/).filter((part) => /^processor\s*:/m.test(part));
  if (processors.length === 0) return undefined;
  const field = (part: string, name: string) =>
    new RegExp(`^${name}\\s*:\\s*(.+)$`, "m").exec(part)?.[1].trim();
  const cores = processors.map((part, i) =>
    field(part, "core id") === undefined ? i : `${field(part, "physical id")}/${field(part, "core id")}`
  );
  return {
    physical: new Set(cores).size,
    logical: processors.length,
    model: field(processors[0], "model name"),
  };
}
