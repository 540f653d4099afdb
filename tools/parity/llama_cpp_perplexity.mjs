// The log-probability that llama.cpp gives each token of a text but the first: run by Node in a folder where node-llama-cpp is
// installed.
//
//   node llama_cpp_perplexity.mjs MODEL.gguf [KV_TYPE] < tokens.json > log-probabilities.json
//
// The input is a JSON list of token ids. The KV cache is llama.cpp's default, or of the type given (Q8_0), which takes flash
// attention. One thread, so that the answers are the same again.
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
const tokens = JSON.parse(await text(stdin));
const KV = kvType
  ? { flashAttention: true, experimentalKvCacheKeyType: kvType, experimentalKvCacheValueType: kvType }
  : {};
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: tokens.length + 8, threads: 1, ...KV });
const NEXT = { generateNext: { probabilities: true, options: { temperature: 0 } } };
const sequence = context.getSequence();
const found = [];
for (const [i, token] of tokens.slice(0, -1).entries()) {
  const evaluated = await sequence.controlledEvaluate([[token, NEXT]]);
  found.push(Math.log(evaluated.at(-1).next.probabilities.get(tokens[i + 1])));
}
stdout.write(JSON.stringify(found) + "\n", () => exit(0));
