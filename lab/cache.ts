/** Counts instructions and cache misses of kernels (`deno task bench:cache`). */
import { parseCounts, parsePerf, perCall } from "./counters.ts";
import { command, KERNEL_BENCH, Options, print, run, say } from "../bench/shell.ts";
import { asTable } from "../bench/table.ts";

/** Numbers of calls in two runs. Their difference excludes start-up and packing. */
const CALLS = [1, 5] as const;

const HELP =
  `Count instructions and cache misses of the matrix kernels with valgrind's cachegrind, and instructions per cycle
with perf where the CPU's counters can be read.

Usage: deno task bench:cache [options]

  --formats LIST   GGUF types (default Q8_0,Q4_0,Q4_K,F16)
  --m LIST         tokens that are multiplied at once (default 1,16)
  --shape RxC      rows and columns of the matrix (default 3072x1024)
  --isa NAME       instruction set (default avx2; valgrind does not know AVX-512)
  --json           one JSON object: {"kind", "isa", "shape", "rows": [{"format", "m", "how", "instructions",
                   "instructions_per_block", "d1_misses", "ll_misses", "mpki", "ipc"}, …]}
  --help           this text

Needs valgrind (Debian: apt-get install valgrind). Figures are of one call, on one thread: two runs of ${
    CALLS[0]
  } and ${CALLS[1]} calls,
subtracted. A block is 32 columns of one row for one token. MPKI is first-level data misses in 1,000 instructions,
by cachegrind's model of this machine's caches, which knows no prefetch. "row-by-row" and "token-by-token" are what the
panels and the tiles of tokens replace.
Exit code: 0 done, 1 failed, 2 wrong usage.
`;

interface Case {
  readonly format: string;
  readonly m: number;
  readonly how: "kernel" | "row-by-row" | "token-by-token";
}

await command("bench:cache", HELP, async () => {
  const options = new Options(Deno.args, ["formats", "m", "shape", "isa"]);
  const native = Deno.build.arch === "aarch64" ? "neon" : "avx2";
  const isa = options.text("isa") ?? native;
  if (isa.startsWith("avx512")) {
    throw new Error("Cannot count AVX-512: valgrind does not know it. Use --isa avx2");
  }
  const shape = options.text("shape") ?? "3072x1024";
  const formats = (options.text("formats") ?? "Q8_0,Q4_0,Q4_K,F16").split(",");
  const ms = options.counts("m", 512, "1,16");
  await needValgrind();
  const cases: Case[] = [
    ...formats.flatMap((format) => ms.map((m): Case => ({ format, m, how: "kernel" }))),
    { format: "Q4_0", m: 16, how: "token-by-token" },
    { format: "F32", m: 1, how: "kernel" },
    { format: "F32", m: 1, how: "row-by-row" },
  ];
  const [rows, columns] = shape.split("x").map(Number);
  const results = [];
  for (const one of cases) {
    say(`${one.format}, ${one.m} tokens, ${one.how} …`);
    const args = (calls: number) => {
      const settings = { isa, shape, ...one, calls };
      return ["calls", ...Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])];
    };
    const counts = perCall(CALLS, await Promise.all(CALLS.map((calls) => cachegrind(args(calls)))));
    results.push({
      ...one,
      instructions: counts.instructions,
      instructions_per_block: counts.instructions / (rows * columns / 32 * one.m),
      d1_misses: counts.d1Misses,
      ll_misses: counts.llMisses,
      mpki: 1000 * counts.d1Misses / counts.instructions,
      ipc: await instructionsPerCycle(args(200)),
    });
  }
  if (options.json) {
    return print(`${JSON.stringify({ kind: "cache", isa, shape, rows: results })}\n`);
  }
  const table = results.map((r) => [
    `${r.format}, ${r.m} tokens, ${r.how}`,
    (r.instructions / 1e6).toFixed(2),
    r.instructions_per_block.toFixed(2),
    r.mpki.toFixed(1),
    Math.max(0, 1000 * r.ll_misses / r.instructions).toFixed(1),
    r.ipc?.toFixed(2) ?? "-",
  ]);
  const head = ["", "10^6 instructions", "a block", "D1 MPKI", "LL MPKI", "IPC"];
  print(`${isa}, ${shape}, one call\n\n${asTable([head, ...table])}`);
  if (results.every((r) => r.ipc === undefined)) {
    say("IPC is not known: perf is missing, or this machine hides the CPU's counters.");
  }
});

async function needValgrind(): Promise<void> {
  try {
    await new Deno.Command("valgrind", { args: ["--version"], stdout: "null" }).output();
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Error(
      "Cannot count cache misses: valgrind is not on the PATH. Debian: apt-get install valgrind",
    );
  }
}

async function cachegrind(args: readonly string[]) {
  const out = await Deno.makeTempFile({ prefix: "cachegrind" });
  try {
    const flags = [
      "--tool=cachegrind",
      "--cache-sim=yes",
      `--cachegrind-out-file=${out}`,
      "--log-file=/dev/null",
    ];
    await run("valgrind", [...flags, KERNEL_BENCH, ...args]);
    return parseCounts(await Deno.readTextFile(out));
  } finally {
    await Deno.remove(out);
  }
}

/** Returns undefined if perf is missing or cannot read the counters. */
async function instructionsPerCycle(args: readonly string[]): Promise<number | undefined> {
  try {
    const flags = ["stat", "-x,", "-e", "instructions:u,cycles:u", KERNEL_BENCH, ...args];
    const { stderr, success } = await new Deno.Command("perf", { args: flags, stdout: "null" }).output();
    return success ? parsePerf(new TextDecoder().decode(stderr)) : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
