import type { Wanted, World } from "./types.ts";

/** Default settings for tests. */
export const WANTED: Wanted = {
  models: ["/models/a.gguf"],
  host: "127.0.0.1",
  port: 8080,
  hasKeys: false,
  data: "/data",
};

/** Returns /proc/cpuinfo with one processor per given core; undefined stands for a processor without a core's name. */
export function cpuinfo(...cores: (number | undefined)[]): string {
  return cores.map((core, i) =>
    [
      `processor\t: ${i}`,
      "model name\t: Test CPU",
      ...(core === undefined ? [] : ["physical id\t: 0", `core id\t\t: ${core}`]),
    ].join("\n")
  ).join("\n\n") + "\n";
}

/** Returns a machine without faults, except for the test's changes. */
export function madeUp(changes: Partial<World> = {}, files: Readonly<Record<string, string>> = {}): World {
  const texts: Record<string, string> = {
    "/proc/cpuinfo": cpuinfo(0, 1),
    "/proc/self/cgroup": "0::/\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    ...files,
  };
  return {
    os: "linux",
    arch: "x86_64",
    denoVersion: "2.9.6",
    threads: 2,
    readText: (path) => Promise.resolve(texts[path]),
    load: () => 0.5,
    memory: () => ({ total: 16e9, available: 12e9, limit: Infinity, swapped: 0 }),
    permitted: () => true,
    openKernels: () => ({ path: "/lib/libcompy.so", version: 7 }),
    openGrammars: () => ({ path: "/lib/libcompy_grammar.so", version: 1 }),
    instructionSets: () => Promise.resolve(["avx2", "scalar"]),
    measureLimits: () => Promise.resolve({ readGbps: 20, int8Gops: 400, f32Gflops: 100 }),
    examineGpu: () => Promise.resolve(undefined),
    measureModel: () => Promise.resolve({ name: "a", bytes: 1e9 }),
    modelsIn: () => [],
    occupantOf: () => Promise.resolve("nobody"),
    tryWriting: () => Promise.resolve(),
    isLocked: () => Promise.resolve(false),
    freeSpace: () => Promise.resolve(50e9),
    ...changes,
  };
}
