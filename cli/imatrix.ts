import { basename } from "@std/path";
import { collectInputs } from "../bench/imatrix.ts";
import { writeImportance } from "../lib/convert.ts";
import { explained } from "../lib/system_errors.ts";
import { COMPUTE, ISA, MAX_CONTEXT, MAX_COUNT, MODEL } from "./shared/engine_settings.ts";
import { escaped } from "./shared/escape.ts";
import { UsageError } from "./shared/flags.ts";
import { readText } from "./shared/given_text.ts";
import { loadOptions, modelPath } from "./shared/model.ts";
import { readWords } from "./shared/read_settings.ts";
import { count, HELP_LINE, helpOf, path } from "./shared/settings.ts";
import { err, onInterrupt, out, ProgressLine } from "./shared/terminal.ts";

const DEFAULT_CHUNK = 512;

const OPTIONS = {
  model: MODEL,
  file: path("FILE", { help: "a UTF-8 file with the text; - is standard input" }),
  out: path("FILE", { help: "the file to write; an existing file is never overwritten" }),
  ctx: count({
    min: 2,
    max: MAX_CONTEXT,
    default: DEFAULT_CHUNK,
    help: `tokens per chunk (default: ${DEFAULT_CHUNK}, as in llama.cpp)`,
  }),
  chunks: count({ min: 1, max: MAX_COUNT, help: "maximum number of chunks (default: all of the text)" }),
  isa: ISA,
  threads: COMPUTE.threads,
};

const HELP =
  `Collect an importance matrix: how large the inputs of each column of a model's matrices are over a text.

Usage: deno task imatrix --file TEXT --out FILE.gguf [options]

${helpOf(OPTIONS)}${HELP_LINE}
The file has llama.cpp's GGUF format. For each matrix of the layers it holds the sum of squared inputs per column, and the number of
inputs. Each expert has its own sums. convert and llama-quantize read the file. 50 to 200 chunks of the
kind of text that the model will see are enough.
The model is computed on the CPU or in WebAssembly. Token embeddings and the output matrix have no entry, as in llama.cpp.
Exit code: 0 done, 1 failed or interrupted, 2 wrong usage.

Example:
  deno task imatrix --model qwen3-0.6b-f16.gguf --file calibration.txt --out qwen3-0.6b.imatrix.gguf
  deno task convert Qwen3-0.6B --out qwen3-0.6b-q3_k.gguf --quantize q3_k --imatrix qwen3-0.6b.imatrix.gguf
`;

/** Runs `imatrix …` of the command line. Returns the exit code. */
export async function imatrixCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP);
  if (given === undefined) return 0;
  const { values } = given;
  const { file, out: target } = values;
  if (file === undefined) throw new UsageError("Give the text: --file TEXT");
  if (target === undefined) throw new UsageError("Give the file to write: --out FILE.gguf");
  const abort = new AbortController();
  const [loading, computing] = [new ProgressLine("Loading"), new ProgressLine("Computing")];
  const unlisten = onInterrupt(() => abort.abort(new Error("Interrupted")));
  const collected = await collectInputs({
    ...loadOptions(values),
    model: modelPath(values.model),
    text: await readText(file, "Cannot read the text"),
    chunkTokens: values.ctx,
    chunks: values.chunks,
    signal: abort.signal,
    progress: (done, total) => {
      abort.signal.throwIfAborted();
      loading.update(done, total);
    },
    onChunk: (done, total) => computing.update(done, total),
  }).finally(() => {
    unlisten();
    computing.done();
  });
  const { model, chunks, wanted, chunkTokens, inputs, unused } = collected;
  if (chunks < wanted) {
    err(`Interrupted after ${chunks} of ${wanted} chunks; no file is written\n`);
    return 1;
  }
  const dataset = file === "-" ? "standard input" : basename(file);
  await writeImportance(target, { dataset, chunks, chunkTokens, inputs }).catch((error) => {
    throw explained(`Cannot write "${target}"`, error);
  });
  out(
    escaped(
      `${target}: inputs of ${inputs.size} matrices of ${model}, ${chunks} chunks of ${chunkTokens} tokens`,
    ) + "\n",
  );
  if (unused > 0) out(`${unused} matrices of experts got no token: their columns get equal weights\n`);
  return 0;
}
