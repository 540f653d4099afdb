import { duration } from "../batch/progress.ts";
import { formatOf, PartialOutput, type VectorFormat } from "./output.ts";
import { readTexts, type TextLine } from "./texts.ts";
import { COMPUTE, CTX, KV_MB, MAX_CONTEXT } from "../shared/engine_settings.ts";
import { UsageError } from "../shared/flags.ts";
import { loadOptions, loadWithProgress, modelPath } from "../shared/model.ts";
import { readWords } from "../shared/read_settings.ts";
import { choice, count, HELP_LINE, helpOf, onOff, path } from "../shared/settings.ts";
import type { Model } from "../../lib/model.ts";
import { explained } from "../../lib/system_errors.ts";
import { err, onInterrupt, out, ProgressLine } from "../shared/terminal.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

const OPTIONS = {
  out: path("FILE", {
    help:
      "the output: .npy is a NumPy matrix (float32, one row per text, in line order); .jsonl has one line " +
      '{"index":0,"id":…,"embedding":[…]} per text; an existing file is never overwritten',
  }),
  model: path("FILE", {
    help: "the GGUF model (default: the one that comes with compy, which is not trained for vectors)",
  }),
  pooling: choice("P", ["mean", "cls", "last"], {
    help:
      "how the rows of a text become one vector: mean, cls (the first row) or last (default: as the file says; else " +
      "last, or mean for encoders)",
  }),
  dimensions: count({
    min: 1,
    max: MAX_CONTEXT,
    help:
      "keep the first N numbers of each vector and scale it to length 1 again (for models trained for that)",
  }),
  ctx: {
    ...CTX,
    help:
      "maximum tokens of a text (default: the model's own context, for decoders as far as memory is free)",
  },
  threads: COMPUTE.threads,
  kvMb: {
    ...KV_MB,
    help: "memory for the KV cache in MB, 10^6 bytes (default: enough for four texts of --ctx tokens)",
  },
  kvType: COMPUTE.kvType,
  activations: COMPUTE.activations,
  json: onOff({
    help:
      'print one JSON object at the end: {"path", "vectors", "dimensions", "tokens", "cached_tokens", "seconds"}',
  }),
};

const HELP = `Convert a file of texts into vectors, one text per line.

Usage: deno task embed TEXTS.jsonl --out VECTORS.npy [options]

  TEXTS.jsonl        one text per line, as JSON: "a text", {"text":"a text"} or {"input":"a text"}, with an optional "id"
${helpOf(OPTIONS)}${HELP_LINE}
Vectors have length 1; their dot product is their similarity. Texts get the special tokens that the model's file asks for
(BOS, EOS), but no instruction. If a model needs one before a query, such as "Instruct: …\\nQuery: …", put it into the text.
All lines are checked first. If a line has no text, an empty text or more tokens than --ctx, it is reported, and nothing is
computed. Lines are streamed, so a file may have any number of them. The output grows as FILE.partial and gets its name when it
is complete; after an error or Ctrl-C nothing remains. To resume a long job, or to share it among machines, use a batch of
/v1/embeddings lines: deno task batch run --help
Exit code: 0 done, 1 refused, failed or stopped, 2 wrong usage.

Example:
  printf '"a fox in the snow"\\n{"id":"b7","text":"a hare in the grass"}\\n' > texts.jsonl
  deno task embed texts.jsonl --out vectors.jsonl --model qwen3-embedding-0.6b-q8_0.gguf
`;

/** Number of tokens in a group of texts that the engine receives together, and number of groups in progress. */
const GROUP_TOKENS = 4096;
const GROUPS = 3;
/** Options for encoding a text: with the special tokens of a prompt, and control tokens recognized. */
const AS_PROMPT = { addSpecial: true, parseSpecial: true };
/** Maximum number of bad lines that are listed. */
const NAMED = 10;

/** Runs `embed …` of the command line. Returns the exit code. */
export async function embedCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP, { operands: ["TEXTS.jsonl"] });
  if (given === undefined) return 0;
  const { values } = given;
  const { out: target, dimensions } = values;
  const format = target === undefined ? undefined : formatOf(target);
  if (target === undefined) throw new UsageError("Give the file to write: --out FILE.npy or FILE.jsonl");
  if (!format) throw new UsageError(`--out must end in .npy or .jsonl (got "${target}")`);
  const load = { ...loadOptions(values), model: modelPath(values.model) };
  const source = given.operand("TEXTS.jsonl");
  const stop = new AbortController();
  onInterrupt(() => stop.abort(new Error("Stopped; nothing is left behind")));
  try {
    await using model = await loadWithProgress({ ...load, signal: stop.signal });
    const width = widthOf(model, dimensions);
    const texts = await checkTexts(model, source, stop.signal);
    const job = new EmbedJob(model, { source, texts, width, signal: stop.signal });
    const report = await job.run(target, format);
    out(given.json ? jsonLine(report) : describe(report));
    return 0;
  } catch (error) {
    throw explained(`Cannot embed "${source}" into "${target}"`, error);
  }
}

/**
 * Returns the number of dimensions of a vector. Throws if the model has no embeddings, or fewer dimensions
 * than requested.
 */
function widthOf({ info: { id, dimensions: size } }: Model, dimensions: number | undefined): number {
  if (size === undefined) {
    throw new Error(
      `The model "${id}" ranks documents and gives no vectors, unless --pooling says otherwise: mean, or last`,
    );
  }
  if (dimensions === undefined || dimensions <= size) return dimensions ?? size;
  throw new UsageError(
    `--dimensions must be at most ${size}, the vector length of this model (got ${dimensions})`,
  );
}

/**
 * Returns the number of texts. Throws if a line is not a text or does not fit; lists the first bad lines on
 * standard error.
 */
async function checkTexts(model: Model, source: string, signal: AbortSignal): Promise<number> {
  let [texts, bad] = [0, 0];
  for await (const line of readTexts(source)) {
    signal.throwIfAborted();
    texts++;
    const reason = "reason" in line ? line.reason : misfit(model, line);
    if (reason === undefined) continue;
    if (bad++ < NAMED) err(`${source}: line ${line.number}: ${reason}\n`);
  }
  if (bad > 0) throw new Error(`${bad} of ${texts} lines cannot be embedded; nothing was computed`);
  if (texts === 0) throw new Error(`There are no texts in "${source}"`);
  return texts;
}

/** Returns why the text cannot be embedded; undefined if it can. */
function misfit(model: Model, { text }: TextLine): string | undefined {
  const { contextLength } = model.info;
  const { length } = model.tokenize(text, AS_PROMPT);
  if (length === 0) return "the text has no tokens";
  if (length <= contextLength) return undefined;
  return `the text has ${length} tokens; at most ${contextLength} are allowed (--ctx)`;
}

interface Report {
  readonly path: string;
  readonly vectors: number;
  readonly dimensions: number;
  readonly tokens: number;
  readonly cached_tokens: number;
  readonly seconds: number;
}

interface JobOptions {
  readonly source: string;
  readonly texts: number;
  readonly width: number;
  readonly signal: AbortSignal;
}

interface Group {
  readonly lines: TextLine[];
  readonly inputs: number[][];
}

/** Embeds a file of texts. A few groups run at once, and vectors are written in the file's order. */
class EmbedJob {
  readonly #line = new ProgressLine("Embedding");
  readonly #started = performance.now();
  #vectors = 0;
  #tokens = 0;
  #cached = 0;

  constructor(private readonly model: Model, private readonly options: JobOptions) {}

  async run(target: string, format: VectorFormat): Promise<Report> {
    const { texts, width, source } = this.options;
    await using output = await PartialOutput.create(target);
    try {
      await output.write(format.head(texts, width));
      const inHand: Promise<Uint8Array[]>[] = [];
      const settle = async () => {
        for (const bytes of await inHand.shift()!) await output.write(bytes);
      };
      let index = 0;
      for await (const group of this.#groups(source)) {
        const vectors = this.#embed(group, index, format);
        vectors.catch(() => {}); // a failure is reported when its turn comes
        inHand.push(vectors);
        index += group.lines.length;
        if (inHand.length >= GROUPS) await settle();
      }
      while (inHand.length > 0) await settle();
      if (index !== texts) throw new Error(`"${source}" has changed meanwhile`);
      await output.complete();
    } finally {
      this.#line.done();
    }
    const seconds = Number(this.#seconds.toFixed(3));
    const tokens = { tokens: this.#tokens, cached_tokens: this.#cached };
    return { path: target, vectors: texts, dimensions: width, ...tokens, seconds };
  }

  get #seconds(): number {
    return (performance.now() - this.#started) / 1000;
  }

  async *#groups(source: string): AsyncGenerator<Group> {
    let group: Group = { lines: [], inputs: [] };
    let tokens = 0;
    for await (const line of readTexts(source)) {
      this.options.signal.throwIfAborted();
      if ("reason" in line) {
        throw new Error(`"${source}" has changed meanwhile: line ${line.number}: ${line.reason}`);
      }
      const input = this.model.tokenize(line.text, AS_PROMPT);
      group.lines.push(line);
      group.inputs.push(input);
      tokens += input.length;
      if (tokens < GROUP_TOKENS) continue;
      yield group;
      group = { lines: [], inputs: [] };
      tokens = 0;
    }
    if (group.lines.length > 0) yield group;
  }

  async #embed({ lines, inputs }: Group, first: number, format: VectorFormat): Promise<Uint8Array[]> {
    const { width, signal } = this.options;
    const { vectors, usage } = await this.model.embed(inputs, {
      dimensions: width,
      priority: "batch",
      signal,
    });
    this.#vectors += vectors.length;
    this.#tokens += usage.promptTokens;
    this.#cached += usage.cachedTokens;
    this.#line.update(this.#vectors, this.options.texts, this.#describePace());
    return vectors.map((row, i) => format.vector({ id: lines[i].id, row }, first + i));
  }

  #describePace(): string {
    const left = this.#seconds * (this.options.texts / this.#vectors - 1);
    const rate = Math.round(this.#tokens / this.#seconds);
    return `${this.#vectors} of ${this.options.texts} texts, ${rate} tokens/s, ${duration(left)} left`;
  }
}

function describe({ path, vectors, dimensions, tokens, cached_tokens, seconds }: Report): string {
  const cached = cached_tokens > 0 ? `, ${cached_tokens} of them from the cache` : "";
  const rate = Math.round(tokens / seconds);
  return `${escaped(path)}: ${vectors} vectors of ${dimensions}; ${tokens} tokens${cached}, in ${
    duration(seconds)
  } (${rate} tokens/s)\n`;
}
