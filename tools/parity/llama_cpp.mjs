// What llama.cpp says along the exact tokens: run by Node in a folder where node-llama-cpp is installed.
//
//   node llama_cpp.mjs MODELS_FOLDER [KV_TYPE] < answers-of-exact.jsonl > answers.jsonl
//
// For each line of exact/, prints {model, prompt, steps: [[log-probability of each of its top tokens]]}: prefill of
// the prompt, then one token after the other, as a generation runs. One thread, so that the answers are the same again.
// The KV cache is llama.cpp's default, or of the type given (Q8_0), which takes flash attention.
import { createRequire } from "node:module";
import { join } from "node:path";
import { stdin, stdout } from "node:process";
import { createInterface } from "node:readline";
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

const [, , folder, kvType] = process.argv;
const KV = kvType
  ? { flashAttention: true, experimentalKvCacheKeyType: kvType, experimentalKvCacheValueType: kvType }
  : {};
const NEXT = { generateNext: { probabilities: true, options: { temperature: 0 } } };

async function follow(context, prompt, steps) {
  const sequence = context.getSequence();
  let input = prompt;
  const out = [];
  for (const { token, top } of steps) {
    const evaluated = await sequence.controlledEvaluate([...input.slice(0, -1), [input.at(-1), NEXT]]);
    const { probabilities } = evaluated.at(-1).next;
    out.push(top.map(([id]) => Math.log(probabilities.get(id))));
    input = [token];
  }
  sequence.dispose();
  return out;
}

let open = { name: undefined, model: undefined };
for await (const line of createInterface({ input: stdin })) {
  const { model: name, prompt, steps } = JSON.parse(line);
  if (open.name !== name) {
    await open.model?.dispose();
    open = { name, model: await llama.loadModel({ modelPath: join(folder, `${name}.gguf`) }) };
  }
  const context = await open.model.createContext({ contextSize: 512, threads: 1, ...KV });
  stdout.write(
    JSON.stringify({ model: name, prompt: prompt.length, steps: await follow(context, prompt, steps) }) +
      "\n",
  );
  await context.dispose();
}
process.exit(0);
