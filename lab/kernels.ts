/** Measures kernels alone and compares them with the machine's limits (`deno task bench:kernels`). */
import { command, KERNEL_BENCH, loadAverage, Options, print, run, say } from "../bench/shell.ts";
import { asTable, percent } from "../bench/table.ts";
import { FORMATS } from "../engine/gguf/formats.ts";

/** Default matrix shapes: gate and down of Qwen3-0.6B, and the gate of Qwen3-1.7B. */
const SHAPES = "3072x1024,1024x3072,6144x2048";
const ROWS = "1,2,4,8,16,32,128,512";

const HELP =
  `Measure the matrix kernels: formats x tokens x shapes, and what share of this machine's limits each reaches.

Usage: deno task bench:kernels [options]

  --formats LIST   GGUF types (default: all that compy computes with)
  --m LIST         tokens that are multiplied at once (default ${ROWS})
  --shapes LIST    ROWSxCOLUMNS of the matrix (default ${SHAPES})
  --threads LIST   threads that compute (default: 1 and one a core)
  --isa NAME       instruction set (default: the best that this CPU has)
  --rounds N       samples of each (default 15)
  --json           one JSON object: {"kind", "isa", "cache_bytes", "rounds", "load_before", "load_after",
                   "limits": [{"threads", "read_gbps", "int8_gops", "f32_gflops"}, …],
                   "rows": [{"threads", "shape", "format", "weights_in", "m", "gbps", "gbps_best", "gops", "gops_best",
                             "share_of_bandwidth", "share_of_peak"}, …]}
  --help           this text

Each matrix is measured from memory (copies that together are twice the last-level cache, used in turn) and from cache
(as many of its rows as a core's own cache holds). A round samples the bandwidth and the peaks, then every m. Figures
without "best" are medians over the rounds; shares are the best sample over the best limit of the same run. The peak is
int8's for quantised weights, f32's for F32, F16 and BF16. One thread is timed by its own clock, so that other programs
hardly count; all threads by the wall's, so let nothing else compute. Activations are quantised beforehand.
Exit code: 0 done, 1 failed, 2 wrong usage.
`;

interface Report {
  readonly isa: string;
  readonly limits: readonly Record<"threads" | "read_gbps" | "int8_gops" | "f32_gflops", number>[];
  readonly rows: readonly Row[];
  readonly load_before: number;
  readonly load_after: number;
}

interface Row {
  readonly threads: number;
  readonly shape: string;
  readonly format: string;
  readonly weights_in: "memory" | "cache";
  readonly m: number;
  readonly gbps: number;
  readonly gops: number;
  readonly share_of_bandwidth: number;
  readonly share_of_peak: number;
}

await command("bench:kernels", HELP, async () => {
  const options = new Options(Deno.args, ["formats", "m", "shapes", "threads", "isa", "rounds"]);
  const cores = navigator.hardwareConcurrency;
  const settings = {
    formats: options.text("formats") ?? Object.keys(FORMATS).join(","),
    m: options.counts("m", 4096, ROWS).join(","),
    shapes: options.text("shapes") ?? SHAPES,
    threads: [...new Set(options.counts("threads", 1024, `1,${cores}`))].join(","),
    isa: options.text("isa") ?? "",
    rounds: String(options.count("rounds", 10_000, 15)),
  };
  const before = loadAverage();
  say("Measuring: some minutes with all formats and shapes …");
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const measured = JSON.parse(await run(KERNEL_BENCH, args));
  const report: Report = { ...measured, load_before: before, load_after: loadAverage() };
  print(options.json ? `${JSON.stringify(report)}\n` : describe(report));
});

/** Returns one table per thread count, shape and weight location: a row per format, a column per token count. */
function describe(report: Report): string {
  const groups = Map.groupBy(
    report.rows,
    (row) => `${row.threads} threads, ${row.shape}, weights in ${row.weights_in}`,
  );
  const tables = [...groups].map(([title, rows]) => {
    const ms = [...new Set(rows.map((row) => row.m))];
    const cells = [...Map.groupBy(rows, (row) => row.format)].map(([format, byM]) => [
      format,
      ...byM.map((row) =>
        row.m === 1
          ? `${row.gbps.toFixed(1)} GB/s ${
            percent(row.weights_in === "memory" ? row.share_of_bandwidth : row.share_of_peak)
          }`
          : `${row.gops.toFixed(0)} ${percent(row.share_of_peak)}`
      ),
    ]);
    return `${title}\n${asTable([["", ...ms.map((m) => `m = ${m}`)], ...cells])}`;
  });
  const limits = report.limits.map((l) =>
    `${l.threads} threads: reads ${l.read_gbps.toFixed(1)} GB/s, int8 ${l.int8_gops.toFixed(0)} GOPS, ` +
    `f32 ${l.f32_gflops.toFixed(0)} GFLOPS`
  );
  return [
    `${report.isa}; load ${report.load_before.toFixed(1)} before, ${report.load_after.toFixed(1)} after`,
    ...limits,
    "m = 1: GB/s and share of the bandwidth (in cache: of the peak); m > 1: GOPS and share of the peak",
    "",
    tables.join("\n"),
  ].join("\n");
}
