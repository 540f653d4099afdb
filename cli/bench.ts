import { benchAgainst } from "../bench/against.ts";
import { benchForms } from "../bench/forms.ts";
import { benchModel, type BenchOptions, type BenchReport } from "../bench/model.ts";
import { ANY_MODEL, measureTasks, type SpeedOptions } from "../bench/speculation.ts";
import { BARRIER, CORE, threadsOnPaper } from "../bench/threads_on_paper.ts";
import { asTable, percent } from "../bench/table.ts";
import { KV_WORDS } from "../lib/model.ts";
import { GRAMMARS, KERNELS } from "../lib/libraries.ts";
import { Flags } from "./shared/flags.ts";
import {
  BACKEND_FLAGS,
  backendOptions,
  describeBackend,
  MAX_CONTEXT,
  MAX_PARALLEL,
  MAX_THREADS,
  modelPath,
  SPECULATION_FLAGS,
  speculationOptions,
} from "./shared/model.ts";
import { buildFirst } from "./shared/native_build.ts";
import { err, out } from "./shared/terminal.ts";

const DEFAULT_SEQUENCES = [1, 4, 16];
/** Tokens of answers in a form. */
const DEFAULT_ANSWER = 128;
/** Answers that are timed with drafts, and without. */
const SPECULATION_ROUNDS = 5;

const HELP = `Measure how fast a model runs here, and what share of this machine's limits that is.

Usage: deno task bench [options]

  --model FILE   the GGUF model (default: the one that comes with compy)
  --pp N         tokens of each prompt, or of each text of an encoder (default 512, or what the model's context holds)
  --tg N         tokens decoded after it (default 64)
  --npl LIST     how many sequences to decode side by side, or of an encoder texts to embed (default ${
  DEFAULT_SEQUENCES.join(",")
})
  --context LIST context lengths at which one sequence is prefilled and decoded besides, such as 512,2048,8192
  --together     prefill 16 prompts of 128 tokens together besides, and one of 2,048
  --against FILE compare with a second model, such as the same in F32: three runs of each, in turn
  --schema       compare answers in a form with free ones, through the whole engine: in a JSON schema that gives no token and in one
                 of records, counting the tokens that were sampled, and in one whose names make about half of the tokens, counting
                 all
  --speculate S  compare answers with drafts of this source (auto, lookup, mtp or draft) with those without, through the whole
                 engine: of a text that is to be repeated, of stories and of random text
  --draft FILE   a smaller model of the same vocabulary that drafts
  --profile      list ops of a step, for each of --npl, by how much longer they take than their floor, and what passes in no op;
                 on a GPU the dispatches of one decoded token, by
                 its own clock, beside the time in which their weights could be copied, and what recording them takes
  --threads-on-paper LIST  instead: how a step would spread over so many threads, such as 8,16,32,64: counted, from the header alone
  --threads N    threads that compute (default: one a physical core)
  --isa NAME     instruction set (default: the best that this CPU has)
  --backend NAME cpu, wasm (WebAssembly), webgpu, or auto: the GPU if it measures faster (default cpu;
                 wasm where there are no native kernels)
  --arithmetic A of the GPU's matrix products: f32 or f16 (default f32)
  --accuracy A   gated (default), or any: also in an arithmetic in which the model leaves its gates of accuracy
  --kv-type T    of the KV cache: f16, 16 bits a value, which on the CPU are integers with a scale for each head, or q8_0 in
                 53 % of the memory (default f16)
  --activations A rounded before products with quantised weights, on the CPU: fast (to 8 bits) or fine (to 15:
                 nearer to exact, prompts at about half the speed) (default fast)
  --json         one JSON object: {"model", "architecture", "backend", "choice", "isa", "threads", "kv": {"type", "bytes_per_token"},
                 "weights": {"bytes", "bytes_per_token"},
                 "limits": {"read_gbps", "int8_gops", "f32_gflops"},
                 "rows": [{"work", "sequences", "context", "tokens_per_second", "share_of_limit"}, …],
                 "profile": [{"work", "sequences", "op", "count", "ms", "floor_ms"}, …], "rss_mb", "load_ms"};
                 rows of --context have "over_paper" too. With --against: {"models", "rows": [{"work",
                 "sequences", "context", "first", "second", "ratio", "lowest", "highest"}, …]}. With --schema: {"rows": [{"form", "sequences",
                 "forced", "free", "formed", "sampledOnly", "ratio", "lowest", "highest"}, …]}
  --help         this text

The limits are this machine's now: how fast it reads memory, and how many operations it does in a second (a
multiply-add is two). A step cannot be faster than the bytes that it reads (packed weights, and the KV cache for the
context that there is) over the one, or the operations of its matrices over the other, whichever takes longer: integer
operations for quantised weights, float ones for F32, F16 and BF16. 100 % is that bound. Decoding one sequence is bound
by reading, a long prompt by arithmetic; with more sequences at once decoding goes from the one to the other.
Attention counts with the bytes of the KV cache and two products, of integers of 16 bits where those are faster than f32, of
each row and each token before it.

"Over paper" says what context costs: the time of a token over the time at the first context of the list plus what the
additional attention must take. 1 is what bytes and operations explain.

In a checkout without current native kernels the command builds them first, unless --backend is wasm or webgpu.

Rates are medians, of all sequences together. Other programs that compute spoil the figures.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench --model qwen3-0.6b-q8_0.gguf --pp 128 --tg 32 --npl 1,16
`;

/** `bench …` of the command line. Returns the exit code. */
export async function benchCommand(args: readonly string[]): Promise<number> {
  const flags = new Flags(args, {
    values: [
      "model",
      "pp",
      "tg",
      "npl",
      "threads",
      "isa",
      "context",
      "against",
      "threads-on-paper",
      ...BACKEND_FLAGS,
      ...SPECULATION_FLAGS,
    ],
    switches: ["together", "profile", "schema"],
  });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const terminal = Deno.stderr.isTerminal();
  const options = {
    prefill: flags.count("pp", 1, MAX_CONTEXT),
    decode: flags.count("tg", 1, MAX_CONTEXT),
    sequences: [...new Set(flags.counts("npl", 1, MAX_PARALLEL) ?? DEFAULT_SEQUENCES)],
    contexts: flags.counts("context", 1, MAX_CONTEXT),
    together: flags.is("together"),
    profile: flags.is("profile"),
    threads: flags.count("threads", 1, MAX_THREADS),
    isa: flags.text("isa"),
    ...backendOptions(flags),
    model: modelPath(flags.text("model")),
    onPhase: (phase: string) => terminal && err(`\r\x1b[K${phase} …`),
  };
  const onPaper = flags.counts("threads-on-paper", 1, MAX_THREADS);
  if (onPaper) {
    out(await paper(options.model, onPaper, flags.json));
    return 0;
  }
  const needsGrammars = flags.is("schema");
  await buildFirst(options.backend, needsGrammars ? [KERNELS, GRAMMARS] : [KERNELS]);
  const other = flags.text("against");
  const drafts = speculationOptions(flags);
  const text = drafts.speculate !== undefined || drafts.draft !== undefined
    ? await speculation({ ...options, ...drafts }, flags.json)
    : needsGrammars
    ? await forms(options, flags.json)
    : other
    ? await compare(options, other, flags.json)
    : await report(options, flags.json);
  if (terminal) err("\r\x1b[K");
  out(text);
  return 0;
}

async function paper(model: string, threads: readonly number[], json: boolean): Promise<string> {
  const rows = await threadsOnPaper(model, threads);
  if (json) return `${JSON.stringify({ rows })}\n`;
  const cells = rows.map(({ work, threads, linear, barriers, repeated, imbalance, worst }) => [
    work,
    String(threads),
    linear.toFixed(2),
    percent(barriers),
    percent(repeated),
    imbalance.toFixed(2),
    worst.map(({ op, lost }) => `${op} ${percent(lost)}`).join(", "),
  ]);
  const head = ["work", "threads", "of linear", "barriers", "repeated", "busiest / mean", "lost most in"];
  return asTable([head, ...cells]) +
    `\nA barrier is taken to cost ${BARRIER.base} ns and ${BARRIER.thread} ns a thread; a core to read ${CORE.bytes} GB/s and to compute ` +
    `${CORE.int8} GOPS.\nNot counted: bandwidth that cores share, caches, clocks, sockets, other programs.\n`;
}

async function report(options: BenchOptions, json: boolean): Promise<string> {
  const measured = await benchModel(options);
  return json ? `${JSON.stringify(asJson(measured))}\n` : describe(measured);
}

async function forms({ decode = DEFAULT_ANSWER, ...options }: BenchOptions, json: boolean): Promise<string> {
  const rows = await benchForms({ ...options, decode });
  if (json) return `${JSON.stringify({ rows })}\n`;
  const cells = rows.map((row) => [
    row.form + (row.sampledOnly ? ", sampled tokens" : ""),
    String(row.sequences),
    percent(row.forced),
    row.free.toFixed(1),
    row.formed.toFixed(1),
    row.ratio.toFixed(2),
    `${row.lowest.toFixed(2)}-${row.highest.toFixed(2)}`,
  ]);
  const head = ["form", "sequences", "forced", "free tok/s", "formed tok/s", "ratio", "low-high"];
  return `Answers of ${decode} tokens, medians of rounds in turn\n\n${asTable([head, ...cells])}`;
}

async function speculation(
  { decode = DEFAULT_ANSWER, ...options }: BenchOptions & Pick<SpeedOptions, "speculate" | "draft">,
  json: boolean,
): Promise<string> {
  const { model, sequences, threads, isa, backend, kvType, speculate, draft } = options;
  const load = { threads, isa, backend, kvType, speculate, draft };
  const rows = await measureTasks(model, ANY_MODEL, {
    ...load,
    sequences,
    rounds: SPECULATION_ROUNDS,
    tokens: decode,
  });
  if (json) return `${JSON.stringify({ rows })}\n`;
  const cells = rows.map(({ task, sequences, ratio: [median, lowest, highest], cpu, drafted, accepted }) => [
    task,
    String(sequences),
    median.toFixed(2),
    `${lowest.toFixed(2)}-${highest.toFixed(2)}`,
    cpu.toFixed(2),
    drafted.toFixed(2),
    percent(accepted),
  ]);
  const head = ["answer", "sequences", "ratio", "low-high", "in CPU time", "drafts a token", "right"];
  return `Answers of at most ${decode} tokens with drafts over without, medians of rounds in turn\n\n${
    asTable([head, ...cells])
  }`;
}

async function compare(options: BenchOptions, other: string, json: boolean): Promise<string> {
  const { models, rows } = await benchAgainst(options, modelPath(other));
  if (json) return `${JSON.stringify({ models, rows })}\n`;
  const cells = rows.map((row) => [
    row.work,
    String(row.sequences),
    String(row.context),
    row.first.toFixed(1),
    row.second.toFixed(1),
    row.ratio.toFixed(2),
    `${row.lowest.toFixed(2)}-${row.highest.toFixed(2)}`,
  ]);
  const head = ["work", "sequences", "context", "first tok/s", "second tok/s", "ratio", "low-high"];
  return `${models.join(" against ")}, medians of three runs\n\n${asTable([head, ...cells])}`;
}

function asJson({ kv, weights, limits, rows, profile, rssMb, loadMs, ...head }: BenchReport) {
  return {
    ...head,
    kv: { type: kv.type, bytes_per_token: kv.bytesPerToken },
    weights: { bytes: weights.bytes, bytes_per_token: weights.token },
    limits: { read_gbps: limits.readGbps, int8_gops: limits.int8Gops, f32_gflops: limits.f32Gflops },
    rows: rows.map(({ tokensPerSecond, shareOfLimit, overPaper, ...row }) => (
      { ...row, tokens_per_second: tokensPerSecond, share_of_limit: shareOfLimit, over_paper: overPaper }
    )),
    profile: profile.map(({ floorMs, ...row }) => ({ ...row, floor_ms: floorMs })),
    rss_mb: rssMb,
    load_ms: loadMs,
  };
}

function describe({ kv, weights, limits, rows, profile, ...head }: BenchReport): string {
  const cells = rows.map((row) => [
    row.work,
    String(row.sequences),
    String(row.context),
    row.tokensPerSecond.toFixed(1),
    `${(100 * row.shareOfLimit).toFixed(1)} %`,
    row.overPaper?.toFixed(2) ?? "",
  ]);
  const seconds = (head.loadMs / 1000).toFixed(1);
  return [
    `${head.model}: ${head.architecture}; ${
      describeBackend({ name: head.backend, ...head }, head.choice)
    }; loaded in ${seconds} s, ` +
    `${head.rssMb.toFixed(0)} MB resident`,
    `weights: ${megabytes(weights.bytes)}, of which a token reads ${megabytes(weights.token)}`,
    `KV cache in ${KV_WORDS[kv.type]}: ${kv.bytesPerToken} bytes a token`,
    head.backend !== "webgpu"
      ? `this machine: reads ${limits.readGbps.toFixed(1)} GB/s, int8 ${limits.int8Gops.toFixed(0)} GOPS, ` +
        `f32 ${limits.f32Gflops.toFixed(0)} GFLOPS`
      : `this GPU: copies ${limits.readGbps.toFixed(1)} GB/s`,
    "",
    asTable([["work", "sequences", "context", "tokens/s", "of the limit", "over paper"], ...cells]),
    ...profile.length > 0 ? [describeProfile(profile)] : [],
  ].join("\n");
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

function describeProfile(profile: BenchReport["profile"]): string {
  const cells = profile.map(({ work, sequences, op, count, ms, floorMs }) => [
    `${work}${work === "decode" ? ` of ${sequences}` : ""}: ${op}`,
    String(count),
    ms.toFixed(2),
    floorMs.toFixed(2),
    (ms - floorMs).toFixed(2),
    floorMs > 0 ? percent(floorMs / ms) : "",
  ]);
  return asTable([["ops of a step", "count", "ms", "floor", "gap", "of the limit"], ...cells]);
}
