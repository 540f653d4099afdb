// What llama.cpp makes of whole texts: run by Node in a folder where node-llama-cpp is installed.
//
//   node llama_cpp_texts.mjs MODEL.gguf embed < prompts.json > rows.jsonl
//   node llama_cpp_texts.mjs MODEL.gguf rank < pairs.json > scores.jsonl
//
// `embed` takes a JSON list of lists of token ids and prints a vector a line, not normalised; `rank` takes
// {"query", "documents"} and prints a score from 0 to 1 a line. One thread, so that the answers are the same again.
import { createRequire } from "node:module";
import { join } from "node:path";
import { stdin } from "node:process";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

// Resolved from the folder that Node was started in: this file lies elsewhere.
const require = createRequire(join(process.cwd(), "package.json"));
const { getLlama } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);
const llama = await getLlama({
  gpu: false,
  build: "never",
  progressLogs: false,
  maxThreads: 1,
  logLevel: "error",
});

const [, , modelPath, what] = process.argv;
const input = JSON.parse(await text(stdin));
const model = await llama.loadModel({ modelPath });
const size = { contextSize: 1024, batchSize: 1024, threads: 1 };
const lines = [];
if (what === "rank") {
  const context = await model.createRankingContext(size);
  lines.push(...await context.rankAll(input.query, input.documents));
} else {
  const context = await model.createEmbeddingContext(size);
  for (const tokens of input) lines.push((await context.getEmbeddingFor(tokens)).vector);
}
process.stdout.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""), () => process.exit(0));
