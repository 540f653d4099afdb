/**
 * Measures the GPU's accuracy (`deno task accuracy:webgpu`): products of every format and arithmetic against
 * float64, and models over a text, against the other arithmetic and the CPU.
 */
import { basename, fromFileUrl, join, resolve } from "@std/path";
import { command, Options, print, ROOT, say, UsageError } from "../../bench/shell.ts";
import { ARITHMETICS } from "../../engine/backend/backend.ts";
import { openTestDevice } from "../../engine/backend/webgpu/kernels/testing.ts";
import {
  adversarial,
  GATES,
  productErrors,
  spec,
} from "../../engine/backend/webgpu/kernels/testing_products.ts";
import { GPU_FORMATS, GPU_TYPES } from "../../engine/backend/webgpu/kernels/formats/registry.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import {
  CPU,
  EXACT,
  GATES_IN_WORDS,
  judge,
  type Judged,
  passes,
  type ProductRow,
  productTable,
  summarize,
  type Summary,
  summaryTable,
  textTable,
} from "./accuracy_report.ts";
import { weightsOf } from "./float_copy.ts";
import { Readers, type Setting } from "./teacher_forced.ts";

const HELP = `Measure the accuracy of the GPU.

Usage: deno task accuracy:webgpu [options]

  --model PATH   a GGUF model to compare over a text, or a folder of models; may be repeated (default: the model that comes
                 with compy)
  --tokens N     length of the text (default 512)
  --text FILE    use the first N tokens of this text (default: a text that the model writes on the CPU, always the same)
  --types LIST   formats of the products (default: all)
  --json         one JSON object: {"products": [{"type", "arithmetic", "nmse", "adversarial", "gate", "passes"}, …],
                 "texts": [{"model", "of", "from", "tokens", "mean_kl", "worst_kl", "top1", "worst_flip", "perplexity",
                 "gates"}, …], "summary": [{"of", "from", …}, …], "errors": [{"model", "error"}, …]}
  --help         this text

Products multiply one row of activations with a matrix of random weights, on the kernel for 2 to 4 rows. The error is the mean squared
error over the mean square: of plain activations, and the worst of large, larger and small ones, one outlier and zeros.
A text goes through each arithmetic sixteen tokens at a time. The predictions after each token are compared: Kullback-Leibler
divergence, likeliest token, and difference of perplexities. Where the likeliest token differs, "flip" is the largest lead (nats) that
the reference gives its own. The gates are in docs/WEBGPU.md: from f32, and from the CPU with the model's values in F32 (up to 2^28
weights). Normally the CPU rounds activations of quantized weights to 8 bits; distances from that have no gate.
Exit code: 0 all gates hold, 1 one fails or something else failed, 2 wrong usage.
`;

const ROWS_OF_X = 6;
/** Maximum number of weights for a copy in F32, which takes 4 bytes per weight. */
const MOST_WEIGHTS_IN_F32 = 2 ** 28;

async function products(types: readonly TensorType[]): Promise<ProductRow[]> {
  const gpu = await openTestDevice();
  if (!gpu) throw new Error("No adapter with 16-bit floats was found");
  const rows: ProductRow[] = [];
  for (const type of types) {
    say(`${type} …`);
    for (const arithmetic of ARITHMETICS) {
      const [plain, ...hard] = await productErrors(gpu, spec(type, arithmetic), 1, adversarial(ROWS_OF_X));
      const [worst, gate] = [Math.max(...hard), GATES[arithmetic]];
      const passes = plain <= gate && worst <= gate;
      rows.push({ type, arithmetic, nmse: plain, adversarial: worst, gate, passes });
    }
  }
  gpu.device.destroy();
  return rows;
}

const SETTINGS: readonly Setting[] = [
  { name: CPU, backend: "cpu" },
  ...ARITHMETICS.map((arithmetic): Setting => ({ name: arithmetic, backend: "webgpu", arithmetic })),
];
const FROM_F32 = ARITHMETICS.slice(1).map((of) => ({ of, from: "f32" }));
const FROM_CPU = ARITHMETICS.map((of) => ({ of, from: CPU }));
const FROM_EXACT = [...ARITHMETICS, CPU].map((of) => ({ of, from: EXACT }));

/** Reads a text on all backends and arithmetics. */
async function texts(model: string, count: number, path: string | undefined): Promise<Judged[]> {
  const exact = weightsOf(await openGguf(model)) <= MOST_WEIGHTS_IN_F32;
  const settings: Setting[] = exact
    ? [...SETTINGS, { name: EXACT, backend: "cpu", floats: true }]
    : [...SETTINGS];
  using readers = await opened(model, settings, count);
  const text = path ? await tokensOf(model, path, count) : await readers.write();
  const pairs = [...FROM_F32, ...exact ? FROM_EXACT : [], ...FROM_CPU];
  const distances = await readers.compare(text, pairs, (done) => done % 128 === 0 && say(`  ${done} tokens`));
  return distances.map((distance) => judge(basename(model), distance));
}

async function opened(model: string, settings: readonly Setting[], count: number): Promise<Readers> {
  const dir = join(ROOT, ".cache");
  await Deno.mkdir(dir, { recursive: true });
  const scratch = await Deno.makeTempFile({ dir, prefix: "accuracy-" });
  try {
    return await Readers.open(model, settings, count, scratch);
  } finally {
    await Deno.remove(scratch);
  }
}

async function tokensOf(model: string, path: string, count: number): Promise<Int32Array> {
  const tokenizer = createTokenizer((await openGguf(model)).metadata);
  const tokens = tokenizer.encode(await Deno.readTextFile(path), { addSpecial: true });
  if (tokens.length < count) {
    throw new UsageError(
      `--tokens must be at most ${tokens.length}, the tokens of --text ${path} (got ${count})`,
    );
  }
  return Int32Array.from(tokens.slice(0, count));
}

/** Returns the named files, and the files in named folders. */
async function modelsOf(paths: readonly string[]): Promise<string[]> {
  const files: string[] = [];
  for (const path of paths) {
    if (!(await Deno.stat(path)).isDirectory) {
      files.push(path);
      continue;
    }
    const found = (await Array.fromAsync(Deno.readDir(path))).filter(({ name }) => name.endsWith(".gguf"));
    if (found.length === 0) throw new UsageError(`--model ${path} is a folder without a .gguf file`);
    files.push(...found.map(({ name }) => join(path, name)).sort());
  }
  return files;
}

interface Findings {
  readonly products: readonly ProductRow[];
  readonly texts: readonly Judged[];
  readonly summary: readonly Summary[];
  readonly errors: readonly { readonly model: string; readonly error: string }[];
}

/** Reads texts with all models, and continues with the next one if one fails. */
async function readAll(models: readonly string[], count: number, path: string | undefined) {
  const found: Judged[] = [];
  const errors: { model: string; error: string }[] = [];
  for (const [i, model] of models.entries()) {
    say(`${basename(model)} (${i + 1} of ${models.length}) …`);
    try {
      const distances = await texts(model, count, path);
      say(textTable(basename(model), distances));
      found.push(...distances);
    } catch (error) {
      if (error instanceof UsageError) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      errors.push({ model: basename(model), error: reason });
      say(`  Error: ${reason}`);
    }
  }
  return { texts: found, summary: summarize(found), errors };
}

function asJson({ products, texts, summary, errors }: Findings): string {
  const named = texts.map(({ meanKl, worstKl, worstFlip, same: _, gates, ...d }) => ({
    ...d,
    mean_kl: meanKl,
    worst_kl: worstKl,
    worst_flip: worstFlip,
    gates: gates && { mean_kl: gates.meanKl, top1: gates.top1, perplexity: gates.perplexity },
  }));
  const summed = summary.map(({ meanKl, worstKl, leastTop1, worstFlip, failed, ...s }) => ({
    ...s,
    mean_kl: meanKl,
    worst_kl: worstKl,
    least_top1: leastTop1,
    worst_flip: worstFlip,
    failed: failed && { mean_kl: failed.meanKl, top1: failed.top1, perplexity: failed.perplexity },
  }));
  return `${JSON.stringify({ products, texts: named, summary: summed, errors })}\n`;
}

function inWords({ products, texts, summary }: Findings): string {
  const byModel = Map.groupBy(texts, ({ model }) => model);
  return [
    productTable(products),
    ...[...byModel].map(([model, distances]) => textTable(model, distances)),
    ...byModel.size > 1 ? [summaryTable(summary)] : [],
    GATES_IN_WORDS,
  ].join("\n");
}

await command("accuracy:webgpu", HELP, async () => {
  const options = new Options(Deno.args, ["model", "tokens", "text", "types"]);
  const inFolder = (path: string) => resolve(Deno.env.get("INIT_CWD") ?? ".", path);
  const given = options.texts("model").map(inFolder);
  const demo = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
  const models = await modelsOf(given.length > 0 ? given : [demo]);
  const types = (options.text("types") ?? GPU_TYPES.join()).split(",");
  const unknown = types.find((type) => !Object.hasOwn(GPU_FORMATS, type));
  if (unknown !== undefined) {
    throw new UsageError(`--types must be among ${GPU_TYPES.join(", ")} (got "${unknown}")`);
  }
  const [count, path] = [options.count("tokens", 1_000_000, 512), options.text("text")];
  if (count < 2) {
    throw new UsageError(
      `--tokens must be at least 2: nothing is compared after the last token (got ${count})`,
    );
  }
  const found: Findings = {
    products: await products(types as TensorType[]),
    ...await readAll(models, count, path && inFolder(path)),
  };
  print(options.json ? asJson(found) : inWords(found));
  const failed = [...found.products.map((row) => row.passes), ...found.texts.map(passes)];
  if (failed.includes(false)) throw new Error("An accuracy gate failed");
  if (found.errors.length > 0) throw new Error(`${found.errors.length} models could not be compared`);
});
