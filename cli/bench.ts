import { benchModel, type BenchReport } from "../bench/model.ts";
import { Flags } from "./flags.ts";
import {
  backendOptions,
  describeBackend,
  MAX_CONTEXT,
  MAX_PARALLEL,
  MAX_THREADS,
  modelPath,
} from "./model.ts";
import { err, out } from "./terminal.ts";

const DEFAULT_SEQUENCES = [1, 4, 16];

const HELP = `Measure how fast a model runs here, and what share of this machine's limits that is.

Usage: deno task bench [options]

  --model FILE   the GGUF model (default: the one that comes with compy)
  --pp N         tokens of each prompt (default 512, or what the model's context holds)
  --tg N         tokens decoded after it (default 64)
  --npl LIST     how many sequences to decode side by side (default ${DEFAULT_SEQUENCES.join(",")})
  --threads N    threads that compute (default: one a core)
  --isa NAME     instruction set (default: the best that this CPU has)
  --backend NAME cpu, webgpu, or auto: the GPU if it measures faster (default cpu)
  --arithmetic A of the GPU's matrix products: f32, f16-activations or f16 (default f32)
  --json         one JSON object: {"model", "architecture", "backend", "choice", "isa", "threads",
                 "limits": {"read_gbps", "int8_gops", "f32_gflops"},
                 "rows": [{"work", "sequences", "context", "tokens_per_second", "share_of_limit"}, …],
                 "rss_mb", "load_ms"}
  --help         this text

The limits are this machine's now: how fast it reads memory, and how many operations it does in a second (a
multiply-add is two). A step cannot be faster than the bytes that it reads (packed weights, and the KV cache for the
context that there is) over the one, or the operations of its matrices over the other, whichever takes longer: integer
operations for quantised weights, float ones for F32, F16 and BF16. 100 % is that bound. Decoding one sequence is bound
by reading, a long prompt by arithmetic; with more sequences at once decoding goes from the one to the other.

Rates are medians, of all sequences together. Other programs that compute spoil the figures.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench --model qwen3-0.6b-q8_0.gguf --pp 128 --tg 32 --npl 1,16
`;

/** `bench …` of the command line. Returns the exit code. */
export async function benchCommand(args: readonly string[]): Promise<number> {
  const flags = new Flags(args, {
    values: ["model", "pp", "tg", "npl", "threads", "isa", "backend", "arithmetic"],
  });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const terminal = Deno.stderr.isTerminal();
  const report = await benchModel({
    prefill: flags.count("pp", 1, MAX_CONTEXT),
    decode: flags.count("tg", 1, MAX_CONTEXT),
    sequences: [...new Set(flags.counts("npl", 1, MAX_PARALLEL) ?? DEFAULT_SEQUENCES)],
    threads: flags.count("threads", 1, MAX_THREADS),
    isa: flags.text("isa"),
    ...backendOptions(flags),
    model: modelPath(flags.text("model")),
    onPhase: (phase) => terminal && err(`\r\x1b[K${phase} …`),
  });
  if (terminal) err("\r\x1b[K");
  out(flags.json ? `${JSON.stringify(asJson(report))}\n` : asTable(report));
  return 0;
}

function asJson({ limits, rows, rssMb, loadMs, ...head }: BenchReport) {
  return {
    ...head,
    limits: { read_gbps: limits.readGbps, int8_gops: limits.int8Gops, f32_gflops: limits.f32Gflops },
    rows: rows.map(({ tokensPerSecond, shareOfLimit, ...row }) => (
      { ...row, tokens_per_second: tokensPerSecond, share_of_limit: shareOfLimit }
    )),
    rss_mb: rssMb,
    load_ms: loadMs,
  };
}

function asTable({ limits, rows, ...head }: BenchReport): string {
  const cells = rows.map((row) => [
    row.work,
    String(row.sequences),
    String(row.context),
    row.tokensPerSecond.toFixed(1),
    `${(100 * row.shareOfLimit).toFixed(1)} %`,
  ]);
  const table = [["work", "sequences", "context", "tokens/s", "of the limit"], ...cells]
    .map(([work, ...figures]) => work.padEnd(8) + figures.map((figure) => figure.padStart(13)).join(""));
  const seconds = (head.loadMs / 1000).toFixed(1);
  return [
    `${head.model}: ${head.architecture}; ${
      describeBackend({ name: head.backend, ...head }, head.choice)
    }; loaded in ${seconds} s, ` +
    `${head.rssMb.toFixed(0)} MB resident`,
    head.backend === "cpu"
      ? `this machine: reads ${limits.readGbps.toFixed(1)} GB/s, int8 ${limits.int8Gops.toFixed(0)} GOPS, ` +
        `f32 ${limits.f32Gflops.toFixed(0)} GFLOPS`
      : `this GPU: copies ${limits.readGbps.toFixed(1)} GB/s`,
    "",
    ...table,
    "",
  ].join("\n");
}
