/** What rows of drafts cost, and what a model's own layer that drafts does and is worth (`deno task bench:drafts --model FILE.gguf`). */
import { buildPlan, readRopeFactors } from "../engine/architectures/registry.ts";
import { greedyRequest, KV_BLOCK_TOKENS, type StepInput } from "../engine/backend/backend.ts";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { loadEngine } from "../engine/load.ts";
import { wholeTables } from "../engine/plan/plan.ts";
import type { Engine } from "../engine/types.ts";
import { median } from "./samples.ts";
import { command, Options, print, UsageError } from "./shell.ts";
import { asTable } from "./table.ts";

const HELP = `Measure what a model's own layer that drafts (MTP) costs, and how much sooner answers are there.

Usage: deno task bench:drafts --model FILE.gguf [options]

  --context N   tokens before those that are decoded (default 512)
  --steps N     steps of each kind, in turns (default 40)
  --tokens N    of each answer (default 200; 0 leaves the answers out)
  --npl N       instead, of any model: steps in which each of N sequences has 1 to 8 rows
  --help        this text

First the milliseconds of a step without the layer and with it, of steps with 2, 3 and 4 rows of a sequence, whose logits
are all wanted, and of a draft: the median, the least and the most. Then answers with and without drafts, one at a time, greedy
and sampled: tokens a second, and how many tokens of drafts were right. With --npl, beside the times how many times as many tokens a
second there would be were all drafts right, or nine tokens of ten. Exit code: 0 done, 1 failed, 2 wrong usage.
`;

const PROMPTS = [
  "Tell me a story.",
  "Tell me a story about a friend.",
  "Who are you?",
  "Tell me a story about a lost ball.",
  "What is a dinosaur?",
  "Please tell me a short story.",
];
/** Rows of each sequence. */
const ROWS = [1, 2, 3, 4, 5, 6, 8] as const;
const MODES = ["off", "mtp", "lookup", "auto"] as const;

await command("bench:drafts", HELP, async () => {
  const options = new Options(Deno.args, ["model", "context", "steps", "tokens", "npl"]);
  const model = options.text("model");
  if (model === undefined) {
    throw new UsageError("--model must name a file whose model has a layer that drafts, or with --npl any");
  }
  if (options.text("npl") !== undefined) {
    const sequences = options.count("npl", 64, 16);
    return await crowd(model, sequences, options.count("context", 1e6, 512), options.count("steps", 1e6, 40));
  }
  await costs(model, options.count("context", 1e6, 512), options.count("steps", 1e6, 40));
  if (options.text("tokens") !== "0") await answers(model, options.count("tokens", 1e6, 200));
});

async function costs(model: string, context: number, steps: number): Promise<void> {
  const file = await openGguf(model);
  const factors = await readRopeFactors(file);
  const blocks = Math.ceil((context + 8) / KV_BLOCK_TOKENS);
  const open = async (drafts: boolean) => {
    const plan = buildPlan(file, factors, undefined, { drafts });
    const backend = new CpuBackend();
    await backend.loadWeights(file, plan);
    await backend.compile(plan, { kvBlocks: blocks, stateSlots: 1, maxRows: context, maxLogitRows: 4 });
    const { blockTable } = wholeTables(plan, Int32Array.from({ length: blocks }, (_, i) => i));
    const step = (length: number, cached: number, wanted = length): StepInput => ({
      tokens: Int32Array.from({ length }, (_, i) => 100 + i % 100),
      sequences: [{
        start: 0,
        length,
        cached,
        blockTable,
        state: { read: cached ? 0 : undefined, write: 0, saves: [] },
      }],
      logits: Array.from({ length: wanted }, (_, i) => greedyRequest(length - wanted + i)),
    });
    await backend.step(step(context, 0, 1));
    const sequences = [{ start: 0, length: 1, cached: context, blockTable }];
    const draft: StepInput = { ...step(1, context), sequences, drafts: Int32Array.of(0) };
    return { backend, draft, rows: (n: number) => step(n, context) };
  };
  const [without, layer] = [await open(false), await open(true)];
  const kinds: [string, () => Promise<unknown>][] = [
    ["a token, without the layer", () => without.backend.step(without.rows(1))],
    ["a token", () => layer.backend.step(layer.rows(1))],
    ["a draft", () => layer.backend.step(layer.draft)],
    ...[2, 3, 4].map((
      n,
    ): [string, () => Promise<unknown>] => [`${n} rows`, () => layer.backend.step(layer.rows(n))]),
  ];
  const times = kinds.map((): number[] => []);
  for (let step = -2; step < steps; step++) {
    for (const [i, [, run]] of kinds.entries()) {
      const start = performance.now();
      await run();
      if (step >= 0) times[i].push(performance.now() - start); // the first ones only warm up
    }
  }
  without.backend.close();
  layer.backend.close();
  const base = median(times[0]);
  const rows = kinds.map(([name], i) => {
    const [ms, least, most] = [median(times[i]), Math.min(...times[i]), Math.max(...times[i])];
    return [name, ms.toFixed(2), `${least.toFixed(2)} to ${most.toFixed(2)}`, (ms / base).toFixed(2)];
  });
  print(asTable([["step", "ms", "from, to", "of the first"], ...rows]));
}

/** Steps of a crowd with rows of drafts behind each of its rows. */
async function crowd(model: string, sequences: number, context: number, steps: number): Promise<void> {
  const file = await openGguf(model);
  const plan = buildPlan(file, await readRopeFactors(file));
  const backend = new CpuBackend();
  await backend.loadWeights(file, plan);
  const most = ROWS.at(-1)!;
  const blocks = Math.ceil((context + most) / KV_BLOCK_TOKENS);
  const stateSlots = plan.states.length > 0 ? sequences : undefined;
  const rows = Math.max(context, sequences * most);
  const size = { kvBlocks: sequences * blocks, stateSlots, maxRows: rows, maxLogitRows: sequences * most };
  await backend.compile(plan, size);
  const tokensOf = (length: number) => Int32Array.from({ length }, (_, i) => 100 + i % 100);
  const part = (i: number, start: number, length: number, cached: number) => ({
    start,
    length,
    cached,
    ...wholeTables(plan, Int32Array.from({ length: blocks }, (_, k) => i * blocks + k)),
    state: stateSlots === undefined ? undefined : { read: cached ? i : undefined, write: i, saves: [] },
  });
  for (let i = 0; i < sequences; i++) {
    await backend.step({ tokens: tokensOf(context), sequences: [part(i, 0, context, 0)], logits: [] });
  }
  const stepOf = (each: number): StepInput => ({
    tokens: tokensOf(sequences * each),
    sequences: Array.from({ length: sequences }, (_, i) => part(i, i * each, each, context)),
    logits: Array.from({ length: sequences * each }, (_, i) => greedyRequest(i)),
  });
  const times = ROWS.map((): number[] => []);
  for (let step = -1; step < steps; step++) {
    for (const [i, each] of ROWS.entries()) {
      const start = performance.now();
      await backend.step(stepOf(each));
      if (step >= 0) times[i].push(performance.now() - start); // the first ones only warm up
    }
  }
  backend.close();
  const base = median(times[0]);
  const lines = ROWS.map((each, i) => {
    const [ms, least, longest] = [median(times[i]), Math.min(...times[i]), Math.max(...times[i])];
    const gain = (right: number) => {
      return Array.from({ length: each }, (_, k) => right ** k).reduce((sum, p) => sum + p) * base / ms;
    };
    const cells = [ms.toFixed(2), `${least.toFixed(2)} to ${longest.toFixed(2)}`, (ms / base).toFixed(2)];
    return [`${each}`, ...cells, gain(1).toFixed(2), gain(0.9).toFixed(2)];
  });
  const head = ["rows of each", "ms", "from, to", "of the first", "tokens, all right", "nine of ten"];
  print(asTable([head, ...lines]));
}

async function answers(model: string, maxTokens: number): Promise<void> {
  const engines: Engine[] = [];
  for (const speculate of MODES) {
    engines.push((await loadEngine({ model, speculate, parallel: 1, contextLength: 1024 })).engine);
  }
  const rows = [["temperature", "drafts", "tokens/s", "tokens", "steps", "right", "wrong"]];
  for (const temperature of [0, 0.8]) {
    for (const [i, engine] of engines.entries()) {
      await answer(engine, PROMPTS[0], temperature, maxTokens, "warm"); // what pays is learned
      const [before, start] = [engine.stats(), performance.now()];
      for (const prompt of PROMPTS) await answer(engine, prompt, temperature, maxTokens, "timed");
      const seconds = (performance.now() - start) / 1000;
      const after = engine.stats();
      const of = (name: "generatedTokens" | "steps" | "acceptedTokens" | "draftedTokens") =>
        after[name] - before[name];
      const [tokens, right] = [of("generatedTokens"), of("acceptedTokens")];
      const counts = [tokens, of("steps"), right, of("draftedTokens") - right].map(String);
      rows.push([`${temperature}`, MODES[i], (tokens / seconds).toFixed(1), ...counts]);
    }
  }
  for (const engine of engines) await engine.close();
  print(asTable(rows));
}

async function answer(
  engine: Engine,
  content: string,
  temperature: number,
  maxTokens: number,
  cacheSalt: string,
): Promise<void> {
  const prompt = engine.encodeChat([{ role: "user", content }]);
  const request = { prompt, maxTokens, sampling: { temperature, seed: 1 }, cacheSalt };
  for await (const _ of engine.submit(request));
}
