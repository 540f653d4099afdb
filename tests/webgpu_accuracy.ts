/**
 * How exact the GPU computes (`deno task accuracy:webgpu`): products of every format and arithmetic against float64, and
 * a model over a text, arithmetic against arithmetic and against the CPU.
 */
import { basename, fromFileUrl, resolve } from "@std/path";
import { ARITHMETICS } from "../engine/backend/backend.ts";
import type { Arithmetic } from "../engine/backend/webgpu/kernels/types.ts";
import { openTestDevice } from "../engine/backend/webgpu/kernels/testing.ts";
import {
  adversarial,
  GATES,
  productErrors,
  spec,
} from "../engine/backend/webgpu/kernels/testing_products.ts";
import { FORMATS } from "../engine/gguf/formats.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { createTokenizer } from "../engine/tokenizer/tokenizer.ts";
import { command, Options, print, say, UsageError } from "../bench/shell.ts";
import { asTable } from "../bench/table.ts";
import { type Distance, Readers, type Setting } from "./teacher_forced.ts";

const HELP = `How exact the GPU computes.

Usage: deno task accuracy:webgpu [options]

  --model FILE   a GGUF model to compare over a text besides (default: the one that comes with compy)
  --tokens N     length of the text (default 512)
  --text FILE    read this text's first N tokens; by default one that the model writes on the CPU, always the same
  --types LIST   formats of the products (default: all)
  --json         one JSON object: {"model", "products": [{"type", "arithmetic", "nmse", "adversarial", "gate", "passes"}, …],
                 "texts": [{"of", "from", "tokens", "mean_kl", "worst_kl", "top1", "perplexity", "passes"}, …]}
  --help         this text

Products are those of one row of activations with a matrix of random weights, on the kernel of 2 to 16 rows: mean squared error over
mean square, of plain activations and of the worst of large, larger, small ones, one outlier and nothing. A text goes
through each arithmetic token by token as it stands; compared is what is expected after each token: Kullback-Leibler divergence,
the likeliest token, and how the perplexities differ. Gates are those of docs/WEBGPU.md; the CPU rounds activations of
quantised weights to 8 bits, so distances from it have none.
Exit code: 0 all gates are kept, 1 one is not or something failed, 2 wrong usage.
`;

/** Of f16 arithmetic from f32, over a text. */
const TEXT_GATES = { meanKl: 2e-4, top1: 0.995, perplexity: 1e-3 };
const ROWS_OF_X = 6;

interface ProductRow {
  readonly type: TensorType;
  readonly arithmetic: Arithmetic;
  readonly nmse: number;
  readonly adversarial: number;
  readonly gate: number;
  readonly passes: boolean;
}

async function products(types: readonly TensorType[]): Promise<ProductRow[]> {
  const gpu = await openTestDevice();
  if (!gpu) throw new Error("There is no adapter with 16-bit floats to measure");
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

const CPU = "CPU";
const SETTINGS: readonly Setting[] = [
  { name: CPU, backend: "cpu" },
  ...ARITHMETICS.map((arithmetic): Setting => ({ name: arithmetic, backend: "webgpu", arithmetic })),
];
const PAIRS = [
  ...ARITHMETICS.slice(1).map((of) => ({ of, from: "f32" })),
  ...ARITHMETICS.map((of) => ({ of, from: CPU })),
];

async function texts(model: string, count: number, path: string | undefined): Promise<Distance[]> {
  using readers = await Readers.open(model, SETTINGS, count);
  const text = path ? await tokensOf(model, path, count) : await readers.write();
  return await readers.compare(text, PAIRS, (done) => done % 64 === 0 && say(`${done} tokens of ${count}`));
}

async function tokensOf(model: string, path: string, count: number): Promise<Int32Array> {
  const tokenizer = createTokenizer((await openGguf(model)).metadata);
  const tokens = tokenizer.encode(await Deno.readTextFile(path), { addSpecial: true });
  if (tokens.length < count) {
    throw new UsageError(`--text ${path} has ${tokens.length} tokens, --tokens wants ${count}`);
  }
  return Int32Array.from(tokens.slice(0, count));
}

function passes({ from, meanKl, top1, perplexity }: Distance): boolean | undefined {
  if (from === CPU) return undefined;
  const { meanKl: kl, top1: top, perplexity: most } = TEXT_GATES;
  return meanKl <= kl && top1 >= top && Math.abs(perplexity) <= most;
}

const verdict = (passes: boolean | undefined) => passes === undefined ? "" : passes ? "pass" : "FAIL";

function describe(model: string, rows: readonly ProductRow[], distances: readonly Distance[]): string {
  const e = (value: number) => value.toExponential(1);
  const productCells = rows.map((r) => [
    `${r.type} ${r.arithmetic}`,
    e(r.nmse),
    e(r.adversarial),
    e(r.gate),
    verdict(r.passes),
  ]);
  const textCells = distances.map((d) => [
    `${d.of} from ${d.from}`,
    e(d.meanKl),
    e(d.worstKl),
    `${(100 * d.top1).toFixed(2)} %`,
    `${(100 * d.perplexity).toFixed(4)} %`,
    verdict(passes(d)),
  ]);
  const { meanKl, top1, perplexity } = TEXT_GATES;
  return [
    asTable([["products", "NMSE", "adversarial", "gate", ""], ...productCells]),
    asTable([
      [`${model}, ${distances[0].tokens} tokens`, "mean KL", "worst KL", "top-1", "perplexity", ""],
      ...textCells,
    ]),
    `Gates from f32: mean KL <= ${meanKl}, top-1 >= ${100 * top1} %, perplexity within ${
      100 * perplexity
    } %.\n`,
  ].join("\n");
}

await command("accuracy:webgpu", HELP, async () => {
  const options = new Options(Deno.args, ["model", "tokens", "text", "types"]);
  const folder = Deno.env.get("INIT_CWD") ?? ".";
  const given = (name: string) => options.text(name) && resolve(folder, options.text(name)!);
  const model = given("model") ?? fromFileUrl(new URL("../models/demo.gguf", import.meta.url));
  const types = (options.text("types") ?? Object.keys(FORMATS).join()).split(",");
  const unknown = types.find((type) => !Object.hasOwn(FORMATS, type));
  if (unknown !== undefined) {
    throw new UsageError(`--types: "${unknown}"; allowed are ${Object.keys(FORMATS).join(", ")}`);
  }
  const rows = await products(types as TensorType[]);
  const distances = await texts(model, options.count("tokens", 1_000_000, 512), given("text"));
  const found = distances.map((d) => ({ ...d, passes: passes(d) }));
  const named = found.map(({ meanKl, worstKl, ...d }) => ({ ...d, mean_kl: meanKl, worst_kl: worstKl }));
  print(
    options.json
      ? `${JSON.stringify({ model: basename(model), products: rows, texts: named })}\n`
      : describe(basename(model), rows, distances),
  );
  if ([...rows, ...found].some((row) => row.passes === false)) throw new Error("A gate is not kept");
});
