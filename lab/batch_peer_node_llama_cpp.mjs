/**
 * Answers a batch file with llama.cpp as node-llama-cpp runs it: as many lines at once as there are sequences, the next
 * line to whichever is free. lab/batch_peers.ts starts it with Node, in a folder where that package is installed:
 *
 *   node batch_peer_node_llama_cpp.mjs '{"model": FILE, "input": FILE, "parallel": 16, "context": 512, "threads": 2}'
 *
 * A sequence keeps what its next line begins with, as that package can. Prints one JSON object:
 * {"seconds", "lines", "prompt_tokens", "output_tokens"}; loading the model is not counted.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { model: modelPath, input, parallel, context: contextSize, threads } = JSON.parse(process.argv[2]);

// The package is where the caller put it, not beside this file.
const require = createRequire(join(process.cwd(), "package.json"));
const { getLlama } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);

const llama = await getLlama({
  gpu: false,
  build: "never",
  progressLogs: false,
  logLevel: "error",
  maxThreads: threads,
});
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  contextSize,
  sequences: parallel,
  threads,
  flashAttention: true,
});

const lines = readFileSync(input, "utf8").trimEnd().split("\n").map((text) => JSON.parse(text).body);
let next = 0;
let promptTokens = 0;
let outputTokens = 0;

async function work(sequence) {
  while (next < lines.length) {
    const { prompt, max_tokens } = lines[next++];
    const tokens = model.tokenize(prompt);
    promptTokens += tokens.length;
    await sequence.adaptStateToTokens(tokens, false);
    const kept = Math.min(sequence.contextTokens.length, tokens.length - 1);
    let count = 0;
    const options = { temperature: 0, yieldEogToken: true };
    for await (const _ of sequence.evaluate(tokens.slice(kept), options)) {
      outputTokens++;
      if (++count === max_tokens) break;
    }
  }
}

const start = performance.now();
await Promise.all(Array.from({ length: parallel }, () => work(context.getSequence())));
const seconds = (performance.now() - start) / 1000;
const report = { seconds, lines: lines.length, prompt_tokens: promptTokens, output_tokens: outputTokens };
// The native threads would keep the process alive.
process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
