import { measurePerplexity, type PerplexityReport } from "../bench/perplexity.ts";
import { asTable } from "../bench/table.ts";
import type { Estimate } from "../bench/token_scores.ts";
import { KV_WORDS } from "../lib/model.ts";
import { COMPUTE, ISA, MAX_CONTEXT, MAX_COUNT, MODEL } from "./shared/engine_settings.ts";
import { UsageError } from "./shared/flags.ts";
import { readText } from "./shared/given_text.ts";
import { describeBackend, loadOptions, modelPath } from "./shared/model.ts";
import { readWords } from "./shared/read_settings.ts";
import { count, HELP_LINE, helpOf, onOff, path } from "./shared/settings.ts";
import { jsonLine } from "./shared/escape.ts";
import { err, onInterrupt, out, ProgressLine } from "./shared/terminal.ts";

const DEFAULT_CHUNK = 512;
/** Minimum tokens of a chunk; a shorter one has no token to score. */
const MIN_CHUNK = 4;

const OPTIONS = {
  model: MODEL,
  file: path("FILE", { help: "a UTF-8 file with the text; - is standard input" }),
  ctx: count({
    min: MIN_CHUNK,
    max: MAX_CONTEXT,
    default: DEFAULT_CHUNK,
    help: `tokens of a chunk (default: ${DEFAULT_CHUNK}, as in llama.cpp)`,
  }),
  chunks: count({ min: 1, max: MAX_COUNT, help: "maximum number of chunks (default: all of the text)" }),
  against: path("FILE", {
    help:
      "also compare each distribution with that of this model, such as the same one in F16; both are in memory at " +
      "once, and this one's KV cache is in 16 bits",
  }),
  isa: ISA,
  ...COMPUTE,
  json: onOff({
    help:
      'print one JSON object: {"model", "backend", "kv_type", "ctx", "chunks", "tokens", "nll", "perplexity", ' +
      '"against"}; "nll" and "perplexity" are {"value", "error"}; "against" needs --against: {"model", "perplexity", ' +
      '"log_ratio", "divergence", "percentiles": [[percent of tokens, divergence], …], "same_top", "difference": {"value", "error", "rms"}}',
  }),
};

const HELP =
  `Measure how well a model predicts a text: its perplexity, and its KL divergence from another model.

Usage: deno task perplexity --file FILE [options]

${helpOf(OPTIONS)}${HELP_LINE}
The method is that of llama.cpp's perplexity tool, so figures compare. The text is cut into chunks of --ctx tokens, and the rest is
left out. If the model's file asks for BOS, BOS replaces the first token of each chunk. The second half of each chunk is
scored. Perplexity is e to the mean negative log-likelihood; ± is the standard error.

With --against, the other model is the reference: divergence is the sum of p(reference) × ln(p(reference) / p(model)) over the whole
vocabulary. All logits are then computed again from unrounded activations. This takes several times as long and moves the
perplexity a little (by 0.06 % for a model of 135M parameters in Q4_1).
Ctrl-C ends the measurement and prints the figures of the complete chunks.
Exit code: 0 done, 1 failed or interrupted, 2 wrong usage.

Examples:
  deno task perplexity --model qwen3-0.6b-q4_k.gguf --file wiki.test.raw --chunks 50
  deno task perplexity --model qwen3-0.6b-q4_k.gguf --file wiki.test.raw --against qwen3-0.6b-f16.gguf
`;

/** Runs `perplexity …` of the command line. Returns the exit code. */
export async function perplexityCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP);
  if (given === undefined) return 0;
  const { values } = given;
  if (values.file === undefined) throw new UsageError("Give the text: --file FILE");
  const abort = new AbortController();
  const [loading, scoring] = [new ProgressLine("Loading"), new ProgressLine("Scoring")];
  const options = {
    ...loadOptions(values),
    model: modelPath(values.model),
    text: await readText(values.file, "Cannot read the text"),
    chunkTokens: values.ctx,
    chunks: values.chunks,
    against: values.against === undefined ? undefined : modelPath(values.against),
    signal: abort.signal,
    progress: (done: number, total: number) => {
      abort.signal.throwIfAborted();
      loading.update(done, total);
    },
    onChunk: (done: number, total: number, perplexity: number) =>
      scoring.update(done, total, `perplexity ${perplexity.toFixed(4)}`),
  };
  const unlisten = onInterrupt(() => abort.abort(new Error("Interrupted")));
  const report = await measurePerplexity(options).finally(() => {
    unlisten();
    scoring.done();
  });
  if (report.tokens > 0) out(values.json ? jsonLine(asJson(report)) : describe(report));
  if (report.chunks === report.wanted) return 0;
  err(`Interrupted after ${report.chunks} of ${report.wanted} chunks\n`);
  return 1;
}

function asJson(
  { model, backend, kvType, chunkTokens, chunks, tokens, nll, perplexity, against }: PerplexityReport,
) {
  return {
    model,
    backend: backend.name,
    kv_type: kvType,
    ctx: chunkTokens,
    chunks,
    tokens,
    nll,
    perplexity,
    ...(against && {
      against: {
        model: against.model,
        perplexity: against.perplexity,
        log_ratio: against.logRatio,
        divergence: against.divergence,
        percentiles: against.percentiles,
        same_top: against.sameTop,
        difference: against.difference,
      },
    }),
  };
}

function describe(report: PerplexityReport): string {
  const { model, backend, choice, kvType, chunkTokens, chunks, tokens, perplexity, against } = report;
  return `${model}: ${describeBackend(backend, choice)}; KV cache in ${KV_WORDS[kvType]}\n` +
    `chunks of ${chunkTokens} tokens: ${chunks}, with ${tokens} scored tokens\n\n` +
    `perplexity ${written(perplexity)}\n` +
    (against ? `\n${comparison(against)}` : "");
}

function comparison(
  { model, perplexity, logRatio, divergence, percentiles, sameTop, difference }: NonNullable<
    PerplexityReport["against"]
  >,
): string {
  const rows = [
    ["perplexity", written(perplexity)],
    ["ln of the ratio", written(logRatio, 6)],
    ["KL divergence", written(divergence, 6)],
    ["same top token", `${percent(sameTop.value)} ± ${percent(sameTop.error)}`],
    ["difference of probabilities", `${percent(difference.value)} ± ${percent(difference.error)}`],
    ["root mean square of it", percent(difference.rms)],
  ];
  const divergences = percentiles.map((
    [percent, value],
  ) => [`${percent} %`, value.toFixed(6)]);
  return `against ${model}\n${asTable(rows)}\ndivergence of at most\n${asTable(divergences)}`;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(3)} %`;
}

function written({ value, error }: Estimate, digits = 4): string {
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}
