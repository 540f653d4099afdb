import { benchAgainst } from "../bench/against.ts";
import { benchForms } from "../bench/forms.ts";
import { benchModel, type BenchOptions, type BenchReport } from "../bench/model.ts";
import { benchTower } from "../bench/tower.ts";
import { ANY_MODEL, measureTasks, type SpeedOptions } from "../bench/speculation.ts";
import { BARRIER, CORE, threadsOnPaper } from "../bench/threads_on_paper.ts";
import { asTable, percent } from "../bench/table.ts";
import { COMPUTE_OPTIONS, KV_WORDS } from "../lib/model.ts";
import { GRAMMARS, KERNELS } from "../lib/libraries.ts";
import { COMPUTE, DRAFTS, ISA, MAX_CONTEXT, MAX_PARALLEL, MODEL } from "./shared/engine_settings.ts";
import { describeBackend, loadOptions, modelPath } from "./shared/model.ts";
import { readWords } from "./shared/read_settings.ts";
import { count, counts, HELP_LINE, helpOf, onOff, path, text } from "./shared/settings.ts";
import { buildFirst } from "./shared/native_build.ts";
import { drawLine, out } from "./shared/terminal.ts";
import { jsonLine } from "./shared/escape.ts";

const DEFAULT_SEQUENCES = [1, 4, 16];
/** Default length of constrained answers, in tokens. */
const DEFAULT_ANSWER = 128;
/** Number of answers that are timed with drafts, and without. */
const SPECULATION_ROUNDS = 5;

const OPTIONS = {
  model: MODEL,
  pp: count({
    min: 1,
    max: MAX_CONTEXT,
    help:
      "tokens of each prompt, or of each text for an encoder (default: 512, or the model's context if shorter)",
  }),
  tg: count({ min: 1, max: MAX_CONTEXT, help: "tokens that are decoded after it (default: 64)" }),
  npl: counts("LIST", {
    min: 1,
    max: MAX_PARALLEL,
    default: DEFAULT_SEQUENCES,
    help:
      "numbers of sequences that are decoded at once, or of texts that an encoder embeds at once (default: " +
      `${DEFAULT_SEQUENCES.join(",")})`,
  }),
  context: counts("LIST", {
    min: 1,
    max: MAX_CONTEXT,
    help: "context lengths, such as 512,2048,8192, at which one sequence is also prefilled and decoded",
  }),
  together: onOff({ help: "also prefill 16 prompts of 128 tokens together, and one of 2,048" }),
  sharedPrefix: onOff({
    help:
      "also decode the sequences of --npl after one common prompt, whose keys and values each step reads once",
  }),
  image: text("WxH", {
    look: {
      rule: "a width and a height in pixels, such as 448x448",
      pattern: /^[1-9]\d{0,3}x[1-9]\d{0,3}$/,
    },
    help: "with a vision tower (mmproj-….gguf) as --model: measure the tower on an image of this size",
  }),
  against: path("FILE", {
    help: "compare with a second model, such as the same one in F32: three runs of each, in turn",
  }),
  schema: onOff({
    help:
      "compare constrained answers with free ones, through the whole engine: in a JSON schema that forces no token and " +
      "in one of records (sampled tokens are counted), and in one whose names make about half of the tokens (all are counted)",
  }),
  ...DRAFTS,
  speculate: {
    ...DRAFTS.speculate,
    help:
      "compare answers with drafts from this source (auto, lookup, mtp or draft) with answers without drafts, through " +
      "the whole engine: a repeated text, stories and random text",
  },
  profile: onOff({
    help:
      "for each of --npl, list the ops of a step by the time above their floor, and the time outside ops; on a GPU, the " +
      "dispatches of one decoded token by its own clock, the time to copy their weights, and the time to record them",
  }),
  threadsOnPaper: counts("LIST", {
    min: 1,
    max: COMPUTE_OPTIONS.threads.max,
    help:
      "instead of a measurement: how a step would spread over these numbers of threads, such as 8,16,32,64, counted " +
      "from the file's header",
  }),
  isa: ISA,
  ...COMPUTE,
  json: onOff({
    help:
      'print one JSON object: {"model", "architecture", "backend", "choice", "isa", "threads", "kv": {"type", ' +
      '"bytes_per_token"}, "weights": {"bytes", "bytes_per_token"}, "limits": {"read_gbps", "int8_gops", "f32_gflops"}, ' +
      '"rows": [{"work", "sequences", "context", "tokens_per_second", "share_of_limit"}, …], "profile": [{"work", ' +
      '"sequences", "op", "count", "ms", "floor_ms"}, …], "rss_mb", "load_ms"}; rows of --context also have ' +
      '"over_paper"; with --against: {"models", "rows": [{"work", "sequences", "context", "first", "second", "ratio", ' +
      '"lowest", "highest"}, …]}; with --schema: {"rows": [{"form", "sequences", "forced", "free", "formed", ' +
      '"sampledOnly", "ratio", "lowest", "highest"}, …]}',
  }),
};

const HELP = `Measure how fast a model runs on this machine, and what share of the machine's limits that is.

Usage: deno task bench [options]

${helpOf(OPTIONS)}${HELP_LINE}
The limits are measured on this machine: how many bytes it reads from memory per second, and how many operations it computes per
second (a multiply-add is two). A step takes at least the time to read its bytes (packed weights and KV cache) and at least the
time for its matrix operations: integer operations for quantized weights, float operations for F32, F16 and BF16. The longer of
both times is the limit of 100 %. Reading limits the decoding of one sequence, arithmetic limits a long prompt, and decoding of
many sequences moves from one to the other. Attention reads the KV cache and computes two products per row and earlier token, in
16-bit integers if they are faster than f32.

"Over paper" is the cost of context: the time per token over the time at the first context of the list plus the time that the
additional attention needs at least. 1 is fully explained by bytes and operations.

In a checkout without current native kernels the command builds them first, unless --backend is wasm or webgpu.

Rates are medians, summed over all sequences. Other programs that compute distort them.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench --model qwen3-0.6b-q8_0.gguf --pp 128 --tg 32 --npl 1,16
`;

/** Runs `bench …` of the command line. Returns the exit code. */
export async function benchCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP);
  if (given === undefined) return 0;
  const terminal = Deno.stderr.isTerminal();
  const { values } = given;
  // The draft comparison sets the options for drafts itself.
  const { speculate, draft, ...load } = loadOptions(values);
  const options = {
    ...load,
    prefill: values.pp,
    decode: values.tg,
    sequences: [...new Set(values.npl)],
    contexts: values.context,
    together: values.together,
    sharedPrefix: values.sharedPrefix,
    profile: values.profile,
    model: modelPath(values.model),
    onPhase: (phase: string) => terminal && drawLine(`${phase} …`),
  };
  if (values.threadsOnPaper) {
    out(await paper(options.model, values.threadsOnPaper, given.json));
    return 0;
  }
  await buildFirst(options.backend, values.schema ? [KERNELS, GRAMMARS] : [KERNELS]);
  const text = speculate !== undefined || draft !== undefined
    ? await speculation({ ...options, speculate, draft }, given.json)
    : values.schema
    ? await forms(options, given.json)
    : values.image
    ? await tower(options, values.image, given.json)
    : values.against
    ? await compare(options, values.against, given.json)
    : await report(options, given.json);
  out(text);
  return 0;
}

async function paper(model: string, threads: readonly number[], json: boolean): Promise<string> {
  const rows = await threadsOnPaper(model, threads);
  if (json) return jsonLine({ rows });
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
  return shown(await benchModel(options), json);
}

async function tower(options: BenchOptions, size: string, json: boolean): Promise<string> {
  const [width, height] = size.split("x").map(Number);
  return shown(await benchTower(options, { width, height }), json);
}

function shown(measured: BenchReport, json: boolean): string {
  return json ? jsonLine(asJson(measured)) : describe(measured);
}

async function forms({ decode = DEFAULT_ANSWER, ...options }: BenchOptions, json: boolean): Promise<string> {
  const rows = await benchForms({ ...options, decode });
  if (json) return jsonLine({ rows });
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
  return `Answers of ${decode} tokens; medians of rounds that alternate\n\n${asTable([head, ...cells])}`;
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
  if (json) return jsonLine({ rows });
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
  return `Answers of at most ${decode} tokens: speed with drafts divided by speed without; medians of rounds that alternate\n\n${
    asTable([head, ...cells])
  }`;
}

async function compare(options: BenchOptions, other: string, json: boolean): Promise<string> {
  const { models, rows } = await benchAgainst(options, modelPath(other));
  if (json) return jsonLine({ models, rows });
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
