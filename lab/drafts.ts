/**
 * Measures the cost of draft rows, and the cost and benefit of a model's own drafting layer (`deno task bench:drafts
 * --model FILE.gguf`).
 */
import { buildPlan, type PlanOptions, readPlan, readRopeFactors } from "../engine/architectures/registry.ts";
import type { StepInput } from "../engine/backend/backend.ts";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { GgufFile } from "../engine/gguf/types.ts";
import { openDrafter } from "../engine/load/drafters/open.ts";
import { loadEngine } from "../engine/load/load.ts";
import type { Plan } from "../engine/plan/plan.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import type { Engine } from "../engine/mod.ts";
import { median } from "../bench/samples.ts";
import { command, Options, print, UsageError } from "../bench/shell.ts";
import { blocksOf, Steps } from "../bench/steps.ts";
import { asTable } from "../bench/table.ts";
import { scripted } from "./scripted_drafts.ts";

const HELP = `Measure the cost of a model's own draft layer (MTP), and how much faster answers are with it.

Usage: deno task bench:drafts --model FILE.gguf [options]

  --context N   tokens in the KV cache before each step (default 512)
  --steps N     steps of each kind; the kinds take turns (default 40)
  --tokens N    tokens per answer (default 200; 0 skips the answers)
  --draft FILE  measures this drafter of the model instead of its own draft layer
  --scripted N  instead: N rounds of answers with the acceptance rates that papers report
  --npl N       instead, for any model: steps in which each of N sequences has 1 to 8 rows
  --help        this text

The first table shows milliseconds (median, minimum, maximum) of these steps: without the draft layer, with it, with 2, 3 and 4
rows of a sequence that all request logits, and of a draft. The second table compares answers with and without drafts, one at
a time, greedy and sampled: tokens per second and accepted draft tokens. --npl also prints the speed-up if all draft tokens
were accepted, or nine of ten. With --scripted, the draft layer runs as usual, but a script replaces its tokens: each draft
token is right with the reported probability. Exit code: 0 done, 1 failed, 2 wrong usage.
`;

const PROMPTS = [
  "Tell me a story.",
  "Tell me a story about a friend.",
  "Who are you?",
  "Tell me a story about a lost ball.",
  "What is a dinosaur?",
  "Please tell me a short story.",
];
/** Numbers of rows per sequence to measure. */
const ROWS = [1, 2, 3, 4, 5, 6, 8] as const;
/** Numbers of tokens to draft in one pass. */
const BLOCKS = [2, 3, 4, 7, 15] as const;
const MODES = ["off", "mtp", "lookup", "auto"] as const;

await command("bench:drafts", HELP, async () => {
  const options = new Options(Deno.args, ["model", "context", "steps", "tokens", "npl", "scripted", "draft"]);
  const model = options.text("model");
  if (model === undefined) {
    throw new UsageError(
      "--model must name a file with a draft layer, or with --npl or --draft any model file",
    );
  }
  if (options.text("npl") !== undefined) {
    const sequences = options.count("npl", 64, 16);
    return await crowd(model, sequences, options.count("context", 1e6, 512), options.count("steps", 1e6, 40));
  }
  const draft = options.text("draft");
  if (options.text("scripted") !== undefined) {
    const [tokens, rounds] = [options.count("tokens", 1e6, 200), options.count("scripted", 1e3, 3)];
    return await scripted({ model, draft }, tokens, rounds);
  }
  await costs(model, draft, options.count("context", 1e6, 512), options.count("steps", 1e6, 40));
  if (options.text("tokens") !== "0" && draft === undefined) {
    await answers(model, options.count("tokens", 1e6, 200));
  }
});

async function costs(
  model: string,
  draft: string | undefined,
  context: number,
  steps: number,
): Promise<void> {
  const plain = await openGguf(model);
  const drafter = draft === undefined ? undefined : await openDrafter(draft, plain);
  const file = drafter?.joined ?? plain;
  const factors = await readRopeFactors(file);
  const block = drafter?.description.block;
  const rows = Math.max(4, block?.rows ?? 1);
  const open = async (layer: PlanOptions) => {
    const plan = buildPlan(file, factors, undefined, layer);
    const { backend, steps } = await openSteps(file, plan, { sequences: 1, context, rows });
    return { backend, rows: (n: number) => backend.step(steps.decodeStep(1, context, n)), steps };
  };
  const layer = drafter ? { drafter: drafter.description } : { drafts: true };
  const without = await open({});
  const [drafting, whole] = [await open(layer), await open({ ...layer, draftTokens: Infinity })];
  const drafts = (of: typeof drafting, tokens = 1) => () =>
    of.backend.step(draftOf(of.steps.decodeStep(1, context, block ? 1 + tokens : 1), block?.mask));
  const kinds: Kind[] = [
    ["a token, without the layer", () => without.rows(1)],
    ["a token", () => drafting.rows(1)],
    ["a draft", drafts(drafting)],
    ["a draft from all tokens", drafts(whole)],
    ...block ? BLOCKS.map((n): Kind => [`a draft of ${n} tokens`, drafts(drafting, n)]) : [],
    ...[2, 3, 4].map((n): Kind => [`${n} rows`, () => drafting.rows(n)]),
  ];
  const times = await inTurns(kinds.map(([, run]) => run), steps);
  for (const { backend } of [without, drafting, whole]) backend.close();
  const lines = kinds.map(([name], i) => [name, ...spread(times[i], times[0])]);
  print(asTable([["step", "ms", "from, to", "of the first"], ...lines]));
}

type Kind = [name: string, run: () => Promise<unknown>];

/**
 * Returns a draft step for the step's sequence. With `mask`, all rows after the first are mask tokens, and one span
 * covers all rows.
 */
function draftOf(
  { tokens, sequences: [{ state: _, ...sequence }], logits }: StepInput,
  mask?: number,
): StepInput {
  const { cached, length } = sequence;
  if (mask === undefined) return { tokens, sequences: [sequence], logits, drafts: Int32Array.of(0) };
  return {
    tokens: tokens.map((token, row) => row === 0 ? token : mask),
    sequences: [{ ...sequence, spans: [{ first: cached, end: cached + length }] }],
    logits: logits.slice(1),
    drafts: Int32Array.from(tokens.keys()),
  };
}

/** Measures steps of many sequences with different numbers of draft rows per sequence. */
async function crowd(model: string, sequences: number, context: number, steps: number): Promise<void> {
  const file = await openGguf(model);
  const plan = await readPlan(file);
  const opened = await openSteps(file, plan, { sequences, context, rows: ROWS.at(-1)! });
  const kinds = ROWS.map((rows) => () =>
    opened.backend.step(opened.steps.decodeStep(sequences, context, rows))
  );
  const times = await inTurns(kinds, steps);
  opened.backend.close();
  const lines = ROWS.map((rows, i) => {
    const gain = (right: number) => {
      const tokens = Array.from({ length: rows }, (_, k) => right ** k).reduce((sum, p) => sum + p);
      return (tokens * median(times[0]) / median(times[i])).toFixed(2);
    };
    return [`${rows}`, ...spread(times[i], times[0]), gain(1), gain(0.9)];
  });
  const head = ["rows of each", "ms", "from, to", "of the first", "tokens, all right", "nine of ten"];
  print(asTable([head, ...lines]));
}

/** Returns steps for sequences with `context` tokens, and room for `rows` rows of each in a step. */
async function openSteps(
  file: GgufFile,
  plan: Plan,
  { sequences, context, rows }: { sequences: number; context: number; rows: number },
): Promise<{ backend: CpuBackend; steps: Steps }> {
  const blocks = blocksOf(context + rows);
  const backend = new CpuBackend();
  await backend.loadWeights(file, plan);
  await backend.compile(plan, {
    kvBlocks: sequences * blocks,
    stateSlots: plan.states.length > 0 ? sequences : undefined,
    maxRows: Math.max(Math.min(context, MAX_ROWS), sequences * rows),
    maxLogitRows: sequences * rows,
  });
  const steps = new Steps(backend, plan, blocks);
  for (let i = 0; i < sequences; i++) await steps.prefill(i, 0, context);
  return { backend, steps };
}

/** Returns the milliseconds of each kind of step. The kinds alternate, and the first steps only warm up. */
async function inTurns(kinds: readonly (() => Promise<unknown>)[], steps: number): Promise<number[][]> {
  const times = kinds.map((): number[] => []);
  for (let step = -2; step < steps; step++) {
    for (const [i, run] of kinds.entries()) {
      const start = performance.now();
      await run();
      if (step >= 0) times[i].push(performance.now() - start);
    }
  }
  return times;
}

/** Returns the median and the range of `times`, and their median divided by that of `others`. */
function spread(times: readonly number[], others: readonly number[]): string[] {
  const [ms, least, most] = [median(times), Math.min(...times), Math.max(...times)];
  return [
    ms.toFixed(2),
    `${least.toFixed(2)} to ${most.toFixed(2)}`,
    (ms / median(others)).toFixed(2),
  ];
}

async function answers(model: string, maxTokens: number): Promise<void> {
  const engines: Engine[] = [];
  for (const speculate of MODES) {
    engines.push((await loadEngine({ model, speculate, parallel: 1, contextLength: 1024 })).engine);
  }
  const rows = [["temperature", "drafts", "tokens/s", "tokens", "steps", "right", "wrong"]];
  for (const temperature of [0, 0.8]) {
    for (const [i, engine] of engines.entries()) {
      await answer(engine, PROMPTS[0], temperature, maxTokens, "warm"); // trains the cost model
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
