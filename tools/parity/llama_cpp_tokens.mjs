// The token ids that llama.cpp gives texts: run by Node in a folder where node-llama-cpp is installed.
//
//   node llama_cpp_tokens.mjs VOCABULARY.gguf < texts.jsonl > ids.jsonl
//
// A line of input is {text, special}: with `special`, control tokens are recognised. A line of output is an array of ids.
// Texts go in and ids come out with nothing put around them, and without node-llama-cpp's own trimming.
import { createRequire } from "node:module";
import { join } from "node:path";
import { argv, cwd, exit, stdin, stdout } from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(join(cwd(), "package.json"));
const { getLlama } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);
const llama = await getLlama({
  gpu: false,
  build: "never",
  progressLogs: false,
  maxThreads: 1,
  logLevel: "disabled",
});
const model = await llama.loadModel({ modelPath: argv[2], vocabOnly: true });
for await (const line of createInterface({ input: stdin })) {
  const { text, special } = JSON.parse(line);
  // The addon itself: `model.tokenize` adds steps of its own to some texts.
  stdout.write(JSON.stringify(Array.from(model._model.tokenize(text, special))) + "\n");
}
stdout.end(() => exit(0));
