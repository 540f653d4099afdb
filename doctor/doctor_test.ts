import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { LibraryNotFound } from "../ffi/find.ts";
import { GRAMMARS, KERNELS } from "../ffi/names.ts";
import { diagnose, type Diagnosis } from "./doctor.ts";
import { cpuinfo, madeUp, WANTED } from "./testing.ts";
import type { GpuReport } from "../engine/load/machine.ts";
import type { Status, Wanted, World } from "./types.ts";

const GPU: GpuReport = { name: "Test GPU", software: false, f16: true, error: 1e-7 };
const CPU_QUOTA = "/sys/fs/cgroup/a/cpu.max";

/** Changes to a machine without faults, and the expected finding of one check. */
interface Case {
  readonly name: string;
  readonly world?: Partial<World>;
  readonly files?: Readonly<Record<string, string>>;
  readonly wanted?: Partial<Wanted>;
  readonly check: string;
  readonly status: Status;
  readonly found?: string;
  readonly advice?: string;
}

function missing(library: typeof KERNELS, named = false): () => never {
  return () => {
    const places = [{ path: "/lib/x.so", problem: "missing", reason: "not there" }] as const;
    throw new LibraryNotFound(library, places, named);
  };
}

function throws(error: Error): () => never {
  return () => {
    throw error;
  };
}

const gpu = (changes: Partial<GpuReport>) => ({ examineGpu: () => Promise.resolve({ ...GPU, ...changes }) });
const memory = (available: number, limit = Infinity) => ({
  memory: () => ({ total: 16e9, available, limit, swapped: 0 }),
});

/** Returns a part of /proc/self/limits. */
function limits(stack: string, space: string): string {
  return `Limit                     Soft Limit           Hard Limit           Units     
Max stack size            ${stack.padEnd(20)} unlimited            bytes     
Max address space         ${space.padEnd(20)} unlimited            bytes     
`;
}

const CASES: readonly Case[] = [
  {
    name: "a Deno that is too old",
    world: { denoVersion: "2.9.5" },
    check: "deno",
    status: "wrong",
    advice: "deno upgrade 2.9.6",
  },
  { name: "a newer Deno", world: { denoVersion: "2.10.0" }, check: "deno", status: "ok" },
  {
    name: "models without permission to read them",
    world: { permitted: ({ name }) => name !== "read" },
    check: "permissions",
    status: "wrong",
    found: "without --allow-read=/models models there cannot be read",
    advice: "start Deno with --allow-read=/models",
  },
  {
    name: "memory without permission to query it",
    world: { permitted: ({ name }) => name !== "sys" },
    check: "permissions",
    status: "slow",
    advice: "--allow-sys=systemMemoryInfo",
  },
  {
    name: "an address in brackets",
    world: { permitted: (p) => p.name !== "net" || p.host !== "[::1]:8080" },
    wanted: { host: "::1" },
    check: "permissions",
    status: "wrong",
    advice: "--allow-net=[::1]:8080",
  },
  {
    name: "no kernels",
    world: { openKernels: missing(KERNELS) },
    check: "kernels",
    status: "slow",
    found: "none of 1 places has the kernels: WebAssembly computes, more slowly\n/lib/x.so: not there",
    advice: "deno task build",
  },
  {
    name: "no kernels although the backend is native",
    world: { openKernels: missing(KERNELS) },
    wanted: { backend: "cpu" },
    check: "kernels",
    status: "wrong",
    found: "none of 1 places has the kernels: nothing is computed",
    advice: "deno task build",
  },
  {
    name: "no kernels at the configured library path",
    world: { openKernels: missing(KERNELS, true) },
    check: "kernels",
    status: "wrong",
    found: "none of 1 places has the kernels: nothing is computed",
  },
  {
    name: "no kernels with the WebAssembly backend",
    world: { openKernels: missing(KERNELS) },
    wanted: { backend: "wasm" },
    check: "kernels",
    status: "ok",
  },
  {
    name: "a model that cannot be inspected without kernels",
    world: { measureModel: missing(KERNELS) },
    check: "models",
    status: "wrong",
    found: "not known without the kernels",
  },
  {
    name: "no grammar library",
    world: { openGrammars: missing(GRAMMARS) },
    check: "grammars",
    status: "slow",
    advice: "deno task build",
  },
  {
    name: "a CPU without usable vector instructions",
    world: { instructionSets: () => Promise.resolve(["scalar"]) },
    check: "instruction sets",
    status: "slow",
    found: "scalar is chosen",
    advice: "AVX2",
  },
  {
    name: "two threads a core",
    files: { "/proc/cpuinfo": cpuinfo(0, 0, 1, 1) },
    world: { threads: 4 },
    check: "cores",
    status: "ok",
    found: "Test CPU with 2 physical cores, 4 logical; 2 threads will compute",
  },
  {
    name: "an arm64 CPU, which names no cores",
    files: { "/proc/cpuinfo": cpuinfo(undefined, undefined) },
    check: "cores",
    status: "ok",
    found: "2 physical cores, 2 logical",
  },
  {
    name: "unreadable CPU information",
    world: { readText: () => Promise.resolve(undefined) },
    check: "cores",
    status: "ok",
    found: "2 logical cores; 2 threads",
  },
  {
    name: "a parent control group that allows half a core",
    files: {
      "/proc/self/cgroup": "0::/a/b\n",
      "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
      [CPU_QUOTA]: "50000 100000\n",
    },
    world: { threads: 1 },
    check: "cores",
    status: "slow",
    found: "a control group allows 0.5 cores",
    advice: CPU_QUOTA,
  },
  {
    name: "a control group of version 1",
    files: {
      "/proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n",
      "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
      "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    },
    check: "cores",
    status: "slow",
    found: "a control group allows 1.5 cores",
  },
  {
    name: "a control group without a limit",
    files: {
      "/proc/self/cgroup": "3:cpu:/\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    },
    check: "cores",
    status: "ok",
  },
  {
    name: "other programs that use the cores",
    world: { load: () => 3 },
    check: "cores",
    status: "slow",
    found: "load 3.0",
  },
  {
    name: "more threads than cores",
    wanted: { threads: 8 },
    check: "cores",
    status: "slow",
    advice: "leave --threads out, or give 2",
  },
  {
    name: "hardly any memory",
    world: memory(100e6),
    check: "memory",
    status: "wrong",
    found: "100.0 MB free of 16.0 GB",
    advice: "End other programs",
  },
  { name: "little memory", world: memory(800e6), check: "memory", status: "slow" },
  {
    name: "a control group with little memory",
    world: memory(12e9, 600e6),
    check: "memory",
    status: "slow",
    found: "a control group allows 600.0 MB",
    advice: "MemoryMax=",
  },
  { name: "memory whose size is unknown", world: { memory: () => undefined }, check: "memory", status: "ok" },
  { name: "limits that are unknown", check: "limits", status: "ok" },
  {
    name: "no limits",
    files: { "/proc/self/limits": limits("unlimited", "unlimited") },
    check: "limits",
    status: "ok",
  },
  {
    name: "a small stack",
    files: { "/proc/self/limits": limits("524288", "unlimited") },
    check: "limits",
    status: "wrong",
    found: "a stack of 512 KiB (ulimit -s), and 2048 are needed",
    advice: "ulimit -s 8192",
  },
  {
    name: "little address space",
    files: { "/proc/self/limits": limits("8388608", "40000000000") },
    check: "limits",
    status: "slow",
    found: "40.0 GB of address space (ulimit -v): V8 reserves 34.0 GB",
    advice: "MemoryMax=",
  },
  {
    name: "no huge pages",
    files: { "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n" },
    check: "huge pages",
    status: "slow",
    advice: "echo madvise >",
  },
  { name: "macOS", world: { os: "darwin" }, check: "huge pages", status: "ok" },
  {
    name: "a model that does not fit",
    world: { measureModel: throws(new Error("needs 9 GB, and 2 GB are free")) },
    check: "models",
    status: "wrong",
    found: "1 cannot: /models/a.gguf",
    advice: "needs 9 GB",
  },
  {
    name: "a model whose needs are known",
    world: { measureModel: () => Promise.resolve({ name: "a", bytes: 2e9, tokenBytes: 0.5e9 }) },
    check: "models",
    status: "ok",
    found: "1 model can run: a (2.0 GB, of which a token reads 500.0 MB)",
  },
  {
    name: "a folder with a model that does not fit",
    wanted: { models: [], folder: "/models" },
    world: {
      modelsIn: () => ["/models/a.gguf", "/models/b.gguf"],
      measureModel: (path) =>
        path.endsWith("a.gguf")
          ? Promise.resolve({ name: "a", bytes: 1e9 })
          : Promise.reject(new Error("too large")),
    },
    check: "models",
    status: "slow",
    found: "1 model can run: a (1.0 GB); 1 cannot: /models/b.gguf",
  },
  {
    name: "a folder with many models",
    wanted: { models: [], folder: "/models" },
    world: { modelsIn: () => Array.from({ length: 20 }, (_, i) => `/models/${i}.gguf`) },
    check: "models",
    status: "ok",
    found: "16 models can run: a (1.0 GB), a (1.0 GB), a (1.0 GB), a (1.0 GB), 12 more; 4 more not checked",
  },
  {
    name: "a folder without models",
    wanted: { models: [], folder: "/models" },
    check: "models",
    status: "wrong",
    found: "no model in /models",
  },
  {
    name: "an error that would steer the terminal",
    world: { measureModel: throws(new Error("a\x1b[2Jb")) },
    check: "models",
    status: "wrong",
    advice: "a?[2Jb",
  },
  {
    name: "a port that another program uses",
    world: { occupantOf: () => Promise.resolve("another program") },
    check: "address",
    status: "wrong",
    found: "another program uses 127.0.0.1:8080",
    advice: "--port",
  },
  {
    name: "compy at the port",
    world: { occupantOf: () => Promise.resolve("compy"), isLocked: () => Promise.resolve(true) },
    check: "address",
    status: "ok",
    found: "compy is serving at 127.0.0.1:8080",
  },
  {
    name: "a socket path that cannot be used",
    wanted: { unix: "/run/x.sock" },
    world: { occupantOf: () => Promise.reject(new Deno.errors.PermissionDenied("permission denied")) },
    check: "address",
    status: "wrong",
    found: "Cannot listen on /run/x.sock: permission denied",
    advice: "--unix",
  },
  {
    name: "a server that others reach without a key",
    wanted: { host: "0.0.0.0" },
    check: "keys",
    status: "wrong",
    found: "other machines reach 0.0.0.0",
    advice: "COMPY_API_KEY",
  },
  {
    name: "a server that others reach with a key",
    wanted: { host: "::", hasKeys: true },
    check: "keys",
    status: "ok",
  },
  { name: "IPv6's own address", wanted: { host: "::1" }, check: "keys", status: "ok", found: "this machine" },
  { name: "a socket", wanted: { unix: "/run/x.sock" }, check: "keys", status: "ok", found: "the socket" },
  {
    name: "a data folder that is read-only",
    world: { tryWriting: () => Promise.reject(new Error("Read-only file system")) },
    check: "data folder",
    status: "wrong",
    found: "Cannot write to /data: Read-only file system",
    advice: "--data none",
  },
  {
    name: "a data folder that another server uses",
    world: { isLocked: () => Promise.resolve(true) },
    check: "data folder",
    status: "wrong",
    found: "in use by another server",
  },
  {
    name: "a data folder that the server at the address uses",
    world: { isLocked: () => Promise.resolve(true), occupantOf: () => Promise.resolve("compy") },
    check: "data folder",
    status: "ok",
    found: "in use by the server",
  },
  {
    name: "a full disk",
    world: { freeSpace: () => Promise.resolve(1e6) },
    check: "data folder",
    status: "wrong",
    advice: "make room",
  },
  {
    name: "a disk that is nearly full",
    world: { freeSpace: () => Promise.resolve(500e6) },
    check: "data folder",
    status: "slow",
  },
  { name: "no data folder", wanted: { data: undefined }, check: "data folder", status: "ok", found: "none" },
  {
    name: "a GPU that was not requested",
    world: gpu({}),
    check: "gpu",
    status: "ok",
    found: "right to 1e-7",
  },
  {
    name: "a requested GPU that is missing",
    wanted: { backend: "webgpu" },
    check: "gpu",
    status: "wrong",
    found: "no adapter",
  },
  {
    name: "a requested GPU that is a software adapter",
    world: gpu({ software: true }),
    wanted: { backend: "webgpu" },
    check: "gpu",
    status: "slow",
    found: "a software adapter",
  },
  {
    name: "a GPU that computes wrong",
    world: gpu({ error: 0.1 }),
    wanted: { backend: "webgpu" },
    check: "gpu",
    status: "wrong",
    found: "wrong by 1e-1",
  },
  { name: "a GPU that computes NaN", world: gpu({ error: NaN }), check: "gpu", status: "slow" },
  {
    name: "a GPU that cannot be opened",
    world: { examineGpu: () => Promise.reject(new Error("Cannot open the GPU: no memory")) },
    wanted: { backend: "webgpu" },
    check: "gpu",
    status: "wrong",
    found: "no memory",
  },
  {
    name: "slow memory",
    world: { measureLimits: () => Promise.resolve({ readGbps: 4, int8Gops: 40, f32Gflops: 20 }) },
    check: "bandwidth",
    status: "slow",
    found: "4.0 GB/s read",
    advice: "fewer bits",
  },
  {
    name: "too little memory to measure",
    world: { ...memory(600e6), measureLimits: throws(new Error("not to be called")) },
    check: "bandwidth",
    status: "ok",
    found: "not measured",
  },
  {
    name: "a check that fails itself",
    world: { instructionSets: throws(new Error("oops")) },
    check: "instruction sets",
    status: "wrong",
    found: "oops",
  },
];

async function all(world: World, wanted: Wanted): Promise<Diagnosis[]> {
  return await Array.fromAsync(diagnose(wanted, world));
}

Deno.test("doctor: finds no fault on a machine without faults", async () => {
  const checks = await all(madeUp(), WANTED);
  assertEquals(checks.filter(({ status }) => status !== "ok"), []);
  assertEquals(new Set(checks.map(({ check }) => check)).size, checks.length);
});

for (const { name, world, files, wanted, check, status, found, advice } of CASES) {
  Deno.test(`doctor: ${name}: reports ${status}`, async () => {
    const checks = await all(madeUp(world, files), { ...WANTED, ...wanted });
    const one = checks.find((diagnosis) => diagnosis.check === check)!;
    assertEquals(one.status, status, one.found);
    if (found !== undefined) assertStringIncludes(one.found, found);
    if (advice !== undefined) assertStringIncludes(one.advice ?? "", advice);
    // Every problem needs advice, except a check that fails itself.
    if (status !== "ok" && one.found !== "oops") assert(one.advice);
  });
}
