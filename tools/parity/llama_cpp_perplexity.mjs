// Computes llama.cpp's log-probabilities of the tokens of texts. Run with Node, in a folder where node-llama-cpp is installed.
//
//   node llama_cpp_perplexity.mjs MODEL.gguf [KV_TYPE] < {"chunks", "first", "cut"} > log-probabilities.json
//
// `chunks` is a list of sequences, each a list of token ids. The output has, for each sequence, the log-probabilities of the
// tokens after index `first`. Each call computes `cut` tokens. KV_TYPE (Q8_0) sets the KV cache's type and enables flash
// attention; by default both are llama.cpp's defaults. One thread makes results reproducible.
import { createRequire } from "node:module";
import { join } from "node:path";
import { argv, cwd, exit, stdin, stdout } from "node:process";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const require = createRequire(join(cwd(), "package.json"));
const { getLlama } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);
const llama = await getLlama({
  gpu: false,
  build: "never",
  progressLogs: false,
  maxThreads: 1,
  logLevel: "error",
});

const [, , modelPath, kvType] = argv;
const { chunks, first, cut } = JSON.parse(await text(stdin));
const KV = kvType
  ? { flashAttention: true, experimentalKvCacheKeyType: kvType, experimentalKvCacheValueType: kvType }
  : {};
const model = await llama.loadModel({ modelPath });
const contextSize = Math.max(...chunks.map((tokens) => tokens.length)) + 8;
const context = await model.createContext({ contextSize, threads: 1, ...KV });
const NEXT = { generateNext: { probabilities: true, options: { temperature: 0 } } };
const sequence = context.getSequence();
const found = [];
for (const tokens of chunks) {
  await sequence.clearHistory();
  const scores = [];
  for (let at = 0; at < tokens.length - 1; at += cut) {
    const items = tokens.slice(at, Math.min(at + cut, tokens.length - 1))
      .map((token, i) => at + i < first ? token : [token, NEXT]);
    const evaluated = await sequence.controlledEvaluate(items);
    for (let i = Math.max(0, first - at); i < items.length; i++) {
      scores.push(Math.log(evaluated[i].next.probabilities.get(tokens[at + i + 1])));
    }
  }
  found.push(scores);
}
stdout.write(JSON.stringify(found) + "\n", () => exit(0));
