/**
 * What bench/model.ts measures of compy, measured of llama.cpp as node-llama-cpp runs it. lab/peers.ts starts it
 * with Node, in a folder where that package is installed:
 *
 *   node llama_cpp_speed.mjs '{"model": FILE, "prefill": 512, "decode": 32, "sequences": [1, 16], "threads": 2, "gpu": false}'
 *
 * "gpu" may be "vulkan" or "metal": all layers are computed there then. Prints one JSON object: {"rows": [{"work",
 * "sequences", "tokens_per_second"}, …], "isa", "rss_mb", "load_ms"}: "isa" is the GPU's name, or the CPU's instruction sets that
 * llama.cpp uses. Rates are medians over SAMPLES, of all sequences together.
 */
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const SAMPLES = 2;

const { model: modelPath, prefill, decode, sequences: settings, threads, gpu = false } = JSON.parse(
  process.argv[2],
);

// The package is where the caller put it, not beside this file.
const require = createRequire(join(process.cwd(), "package.json"));
const { getLlama } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);

/** Of "CPU : AVX2 = 1 | AVX512_VNNI = 1 | …" what is there. */
function instructionSets(systemInfo) {
  return [...systemInfo.matchAll(/(\w+) = 1\b/g)].map(([, name]) => name).join(" ");
}

/** Any tokens will do, so long as they are not all the same. */
function prompt(seed) {
  return Array.from({ length: prefill }, (_, i) => (i * 37 + seed * 11) % 200 + 33);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Seconds that the work takes for all sequences at once. */
async function timed(sequences, work) {
  const start = performance.now();
  await Promise.all(sequences.map(work));
  return (performance.now() - start) / 1000;
}

function fill(sequence, seed) {
  return sequence.evaluateWithoutGeneratingNewTokens(prompt(seed));
}

async function generate(sequence) {
  let count = 0;
  for await (const _ of sequence.evaluate([65], { temperature: 0, yieldEogToken: true })) {
    if (++count === decode) break;
  }
}

/** Takes back what was decoded, so that every sample has the same context. */
function rewind(sequence) {
  return sequence.eraseContextTokenRanges([{ start: prefill, end: sequence.contextTokens.length }]);
}

/** A context for `count` sequences. Its KV cache is as large as it will ever be. */
function createContext(model, count) {
  return model.createContext({
    contextSize: prefill + decode + 1,
    sequences: count,
    threads,
    flashAttention: true, // on CPUs too the faster way
  });
}

async function measurePrefill(context) {
  const sequence = context.getSequence();
  await fill(sequence, 0); // warms up
  const seconds = [];
  for (let i = 1; i <= SAMPLES; i++) {
    await sequence.clearHistory();
    seconds.push(await timed([sequence], () => fill(sequence, i)));
  }
  sequence.dispose();
  return prefill / median(seconds);
}

async function measureDecode(context, count) {
  const sequences = Array.from({ length: count }, () => context.getSequence());
  await timed(sequences, fill);
  const seconds = [];
  for (let i = 0; i < SAMPLES; i++) {
    seconds.push(await timed(sequences, generate));
    await Promise.all(sequences.map(rewind));
  }
  return count * decode / median(seconds);
}

const start = performance.now();
const llama = await getLlama({
  gpu,
  build: "never",
  progressLogs: false,
  logLevel: "error",
  maxThreads: threads,
});
if (gpu !== false && llama.gpu !== gpu) throw new Error(`llama.cpp found no GPU through ${gpu}`);
const model = await llama.loadModel(gpu === false ? { modelPath } : { modelPath, gpuLayers: "max" });
const isa = gpu === false ? instructionSets(llama.systemInfo) : (await llama.getGpuDeviceNames()).join(", ");
let context = await createContext(model, settings[0]);
const load_ms = performance.now() - start;

const rows = [{ work: "prefill", sequences: 1, tokens_per_second: await measurePrefill(context) }];
let rss = 0;
for (const [i, count] of settings.entries()) {
  // One each: a context for many sequences could be slower for few.
  if (i > 0) context = await createContext(model, count);
  rows.push({ work: "decode", sequences: count, tokens_per_second: await measureDecode(context, count) });
  rss = Math.max(rss, process.memoryUsage.rss());
  await context.dispose();
}
// The native threads would keep the process alive.
process.stdout.write(`${JSON.stringify({ rows, isa, rss_mb: rss / 1e6, load_ms })}\n`, () => process.exit(0));
