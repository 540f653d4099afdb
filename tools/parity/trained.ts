/**
 * Measures a trained model's distance from the exact answer, compared with llama.cpp (`deno task parity:trained`). With
 * trained weights, activations have outliers; with seeded weights they have none.
 */
import { basename, dirname } from "@std/path";
import { readPlan } from "../../engine/architectures/registry.ts";
import { type ActivationPrecision, KV_BLOCK_TOKENS } from "../../engine/backend/backend.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { withContext } from "../../engine/plan/plan.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { campaignLine } from "../../testing/campaign.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { fetchModel, PACKAGES } from "../../tests/campaigns/trained_campaign.ts";
import { EXACT, peerFolder, run } from "./programs.ts";

const PROMPTS = [
  "The capital of France is",
  "<|im_start|>user\nWrite a short story about a lighthouse keeper who finds a message in a bottle.<|im_end|>\n" +
  "<|im_start|>assistant\n",
  'def fibonacci(n):\n    """Returns the n-th Fibonacci number."""\n',
  "<|im_start|>user\nWhat are three reasons why people should drink more water every day?<|im_end|>\n" +
  "<|im_start|>assistant\n",
];
const STEPS = 24;
const TOP = 20;
const CONTEXT = 512;
/** Inputs of products to round in otherwise exact passes, as patterns of the matrices that read them. */
const ROUNDED: Readonly<Record<string, string>> = {
  "all inputs rounded": "^blk",
  ...Object.fromEntries(
    ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_(gate|up)", "ffn_down"]
      .map((matrix) => [`all but ${matrix.replace(/[()]/g, "")}`, `^blk(?!.*${matrix}$)`]),
  ),
};

/** A line of exact/'s output. */
interface ExactLine {
  readonly prompt: readonly number[];
  readonly steps: readonly {
    readonly token: number;
    readonly top: readonly [id: number, logprob: number][];
    readonly inputs?: Readonly<Record<string, readonly number[]>>;
  }[];
}

/** Returns the mean distance from the exact log-probabilities over a prompt's steps. */
function distance({ steps }: ExactLine, found: (step: number) => readonly number[]): number {
  const all = steps.flatMap(({ top }, i) => top.map(([, exact], k) => Math.abs(exact - found(i)[k])));
  return all.reduce((a, b) => a + b, 0) / all.length;
}

/** Returns compy's log-probabilities for each prompt. One step computes the prompt and the exact tokens after it. */
async function ours(
  path: string,
  lines: readonly ExactLine[],
  { isa, activations }: { isa?: string; activations?: ActivationPrecision },
): Promise<number[]> {
  const plan = async (file: Awaited<ReturnType<typeof openGguf>>) =>
    withContext(await readPlan(file, undefined, { activations }), CONTEXT);
  const kvBlocks = CONTEXT / KV_BLOCK_TOKENS;
  const limits = { kvBlocks, maxRows: CONTEXT, maxLogitRows: STEPS };
  using model = await KernelModel.loadAs(plan, await Deno.readFile(path), limits, { isa });
  const blockTable = Int32Array.from({ length: kvBlocks }, (_, i) => i);
  const distances: number[] = [];
  for (const line of lines) {
    const tokens = [...line.prompt, ...line.steps.slice(0, -1).map(({ token }) => token)];
    const wanted = line.steps.map(({ top }) => ({ probe: top.map(([id]) => id) }));
    const [rows] = await model.step([{ tokens, blockTable, wanted }]);
    distances.push(distance(line, (i) => Array.from(rows[i].probed, (p) => p - rows[i].logSumExp)));
  }
  return distances;
}

async function main(): Promise<void> {
  const { model, isa, "by-op": byOp } = campaignLine({
    task: "parity:trained",
    does:
      `Compares a trained model with the exact answer and with llama.cpp: the mean distance of the log-probabilities of the ${TOP}
likeliest tokens after each of ${STEPS} greedy tokens, for ${PROMPTS.length} prompts. Needs Python with pip, numpy and gguf, Node and npm.`,
    options: {
      model: ["GGUF file (default: that of a package of PyPI)", undefined],
      isa: ["instruction set (default: the best that this CPU has)", undefined],
      "by-op": [
        "1: also the exact pass with the inputs of matrices rounded to 8 bits, of all and of all but one kind",
        0,
      ],
    },
  });
  const folder = await Deno.makeTempDir({ prefix: "compy-trained-" });
  try {
    const path = model ?? await fetchModel(PACKAGES[0], folder);
    const tokenizer = createTokenizer((await openGguf(path)).metadata);
    const prompts = PROMPTS.map((text) => Array.from(tokenizer.encode(text, { parseSpecial: true })));
    const rounds = byOp ? Object.values(ROUNDED).flatMap((pattern) => ["--round", pattern]) : [];
    const args = [EXACT, "--steps", `${STEPS}`, "--top", `${TOP}`, ...rounds, path];
    const exact = await run("python3", args, folder, JSON.stringify(prompts));
    const lines = parse<ExactLine>(exact);
    const script = new URL("llama_cpp.mjs", import.meta.url).pathname;
    const theirs = await run("node", [script, dirname(path)], await peerFolder(folder), exact);
    const peer = parse<{ steps: number[][] }>(theirs)
      .map(({ steps }, i) => distance(lines[i], (step) => steps[step]));
    const rows: [string, number[]][] = [
      ["compy", await ours(path, lines, { isa })],
      ["compy --activations fine", await ours(path, lines, { isa, activations: "fine" })],
      ["llama.cpp", peer],
    ];
    for (const [what, pattern] of byOp ? Object.entries(ROUNDED) : []) {
      rows.push([what, lines.map((line) => distance(line, (i) => line.steps[i].inputs![pattern]))]);
    }
    print(`| ${basename(path)} | ${prompts.map((_, i) => `prompt ${i + 1}`).join(" | ")} | mean |`);
    print(`|${" --- |".repeat(prompts.length + 2)}`);
    for (const [what, distances] of rows) {
      const mean = distances.reduce((a, b) => a + b, 0) / distances.length;
      print(`| ${what} | ${[...distances, mean].map((d) => d.toFixed(4)).join(" | ")} |`);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function parse<T>(text: string): T[] {
  return text.trimEnd().split("\n").map((line) => JSON.parse(line));
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

if (import.meta.main) await main();
