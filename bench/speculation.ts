/** Measures the speedup from drafts, on tasks that copy text and tasks that have nothing to copy. */
import process from "node:process";
import { loadEngine } from "../engine/load/load.ts";
import type { LoadOptions } from "../engine/load/options.ts";
import type { Engine, GenerateRequest } from "../engine/mod.ts";
import { median } from "./samples.ts";

/** A text of about 150 tokens, written for this benchmark. */
const TEXT =
  "The harbour of Lindesnes was built in 1872 by the engineer Karl Andersen, who had studied in Hamburg. Its two piers are " +
  "340 and 215 metres long. In the winter of 1903 a storm broke the outer pier, and it took four years to mend it. Today some " +
  "120 fishing boats land cod, mackerel and shrimp there, and a ferry goes to Farsund three times a day. The lighthouse on the " +
  "western pier has been dark since 1984, but the town keeps it painted red and white.";
const SCHEMA = {
  type: "object",
  properties: { sentences: { type: "array", items: { type: "string" }, maxItems: 6 } },
  required: ["sentences"],
  additionalProperties: false,
};
const WRONG = TEXT.replace("engineer", "enginer").replace("winter", "wintr").replace(
  "lighthouse",
  "lighthose",
);
/** Number of pieces into which each round's answers are timed; with a small model, each takes a few milliseconds. */
const PIECES = 12;
const STORIES = ["a fox and a lamp", "the sea", "a robot that dreams", "a day in the mountains"];

export interface Task {
  readonly name: string;
  /** Required speedups with one sequence, and with 16. */
  readonly least: readonly [number, number];
  request(engine: Engine, i: number): Partial<GenerateRequest>;
}

function chat(engine: Engine, content: string): readonly number[] {
  return engine.encodeChat([{ role: "user", content }]);
}

const copies = (name: string, text: string, constraint?: GenerateRequest["constraint"]): Task => ({
  name,
  least: [2, 1.2],
  request: (engine, i) => ({
    prompt: chat(engine, i === 0 ? text : `${text}\n\n(${i})`),
    sampling: { temperature: 0 },
    constraint,
  }),
});

/** Tasks for a model that follows instructions. */
export const COPIES: readonly Task[] = [
  copies("repeat", `Repeat the following text exactly, word for word:\n\n${TEXT}`),
  copies("correct", `Correct the spelling of this text and write the whole text again:\n\n${WRONG}`),
  copies("extract", `Copy from the following text all sentences that have a number in them:\n\n${TEXT}`),
  copies("extract as JSON", `Copy all sentences of this text into a JSON list:\n\n${TEXT}`, {
    kind: "json_schema",
    schema: SCHEMA,
  }),
];
/** Tasks for a model of random weights, which repeats itself in greedy decoding. */
export const REPEATS: readonly Task[] = [{
  name: "greedy, random weights",
  least: [2, 1.2],
  request: (engine, i) => ({
    prompt: randomPrompt(engine, i),
    sampling: { temperature: 0 },
    ignoreEos: true,
  }),
}];
/** Tasks for any model without text to copy: drafts must not slow them down. */
export const NEW_TEXT: readonly Task[] = [
  {
    name: "stories",
    least: [0.97, 0.97],
    request: (engine, i) => ({
      prompt: chat(engine, `Tell me a story of ${STORIES[i % STORIES.length]}. ${i}`),
      sampling: { temperature: 0.8, seed: i },
      ignoreEos: true,
    }),
  },
  {
    name: "random text",
    least: [0.97, 0.97],
    request: (engine, i) => ({
      prompt: randomPrompt(engine, i),
      sampling: { temperature: 1.5, seed: i },
      ignoreEos: true,
    }),
  },
];

function randomPrompt({ model }: Engine, i: number): number[] {
  return Array.from({ length: 64 }, (_, k) => (k * 7919 + i * 104_729) % Math.floor(0.9 * model.vocabSize));
}

export interface Timed {
  readonly task: string;
  readonly sequences: number;
  /** Ratio of tokens per second with and without drafts: median, lowest and highest of all rounds. */
  readonly ratio: readonly [median: number, lowest: number, highest: number];
  /** The 95 % confidence interval of the median ratio. */
  readonly likely: readonly [from: number, to: number];
  /**
   * Ratio of tokens per second from the pieces' lower quartile times over the rounds. Other programs delay only a few
   * pieces of a round.
   */
  readonly undisturbed: number;
  /** Ratio of tokens per CPU time with and without drafts, over all rounds. Other programs do not affect CPU time. */
  readonly cpu: number;
  readonly rounds: number;
  /** Accepted share of all drafted tokens; `drafted` is the drafted tokens per generated token. */
  readonly accepted: number;
  readonly drafted: number;
  readonly reached: boolean;
}

/** Tasks that suit every model. */
export const ANY_MODEL: readonly Task[] = [COPIES[0], ...NEW_TEXT];

/** Options of loading, the source of drafts, and the answers' length, concurrency and number. */
export interface SpeedOptions extends Omit<LoadOptions, "model" | "parallel" | "contextLength"> {
  /** Minimum number of rounds. More follow until `seconds` have passed. */
  readonly rounds: number;
  readonly seconds?: number;
  readonly tokens: number;
  readonly sequences: readonly number[];
}

/** Times tasks on a model, alternating with and without drafts. Throws if an answer differs. */
export async function measureTasks(
  model: string,
  tasks: readonly Task[],
  { rounds, seconds, tokens, sequences, ...load }: SpeedOptions,
): Promise<Timed[]> {
  const all: Timed[] = [];
  const often = { rounds, seconds };
  for (const parallel of sequences) {
    const options = { ...load, model, parallel, contextLength: 1024 };
    const engines = [
      (await loadEngine({ ...options, speculate: "off", draft: undefined })).engine,
      (await loadEngine(options)).engine,
    ];
    try {
      for (const task of tasks) all.push(await timed(engines, task, parallel, often, tokens));
    } finally {
      for (const engine of engines) await engine.close();
    }
  }
  return all;
}

async function timed(
  engines: readonly Engine[],
  task: Task,
  sequences: number,
  { rounds, seconds = 0 }: Pick<SpeedOptions, "rounds" | "seconds">,
  tokens: number,
): Promise<Timed> {
  const ratios: number[] = [];
  const [, drafting] = engines;
  const cpu = engines.map(() => 0);
  const all = engines.map((): (readonly number[])[] => []);
  for (const engine of engines) await answers(engine, task, sequences, tokens); // trains the cost model
  const [before, start] = [drafting.stats(), performance.now()];
  while (ratios.length < rounds || performance.now() - start < 1000 * seconds) {
    const found: Answered[] = [];
    for (const i of ratios.length % 2 === 0 ? [0, 1] : [1, 0]) {
      found[i] = await answers(engines[i], task, sequences, tokens);
      cpu[i] += found[i].cpu;
    }
    if (found[0].texts !== found[1].texts) throw new Error(`${task.name}: an answer with drafts is another`);
    ratios.push(found[1].rate / found[0].rate);
    for (const [i, { pieces }] of found.entries()) all[i].push(pieces);
  }
  const after = drafting.stats();
  const drafted = after.draftedTokens - before.draftedTokens;
  const sorted = ratios.toSorted((a, b) => a - b);
  const middle = median(ratios);
  return {
    task: task.name,
    sequences,
    ratio: [middle, sorted[0], sorted.at(-1)!],
    likely: likelyMedian(sorted),
    undisturbed: undisturbed(all[0]) / undisturbed(all[1]),
    cpu: cpu[0] / cpu[1],
    rounds: ratios.length,
    accepted: drafted === 0 ? 0 : (after.acceptedTokens - before.acceptedTokens) / drafted,
    drafted: drafted / (after.generatedTokens - before.generatedTokens),
    reached: middle >= task.least[sequences === 1 ? 0 : 1],
  };
}

/**
 * Returns the 95 % confidence interval of the median, by the binomial distribution of the rounds below it. The rounds
 * may have any distribution.
 */
function likelyMedian(sorted: readonly number[]): [number, number] {
  const apart = 0.98 * Math.sqrt(sorted.length);
  const from = Math.max(0, Math.floor((sorted.length - 1) / 2 - apart));
  return [sorted[from], sorted[sorted.length - 1 - from]];
}

/** Returns the sum of the pieces' milliseconds, each at the lower quartile over the rounds. */
function undisturbed(rounds: readonly (readonly number[])[]): number {
  return rounds[0].reduce((sum, _, piece) => {
    const times = rounds.map((pieces) => pieces[piece]).sort((a, b) => a - b);
    return sum + times[times.length >> 2];
  }, 0);
}

interface Answered {
  readonly rate: number;
  /** Milliseconds of each piece. All pieces have the same number of tokens, counted over all answers. */
  readonly pieces: readonly number[];
  /** Microseconds of the process's CPU time from the first token on. */
  readonly cpu: number;
  readonly texts: string;
}

/** Returns tokens per second after every answer's first token, and the answers' texts. */
async function answers(
  engine: Engine,
  task: Task,
  sequences: number,
  maxTokens: number,
): Promise<Answered> {
  const times: number[] = [];
  let cpu = 0;
  const texts = await Promise.all(Array.from({ length: sequences }, async (_, i) => {
    const said: number[] = [];
    const request = { maxTokens, ...task.request(engine, i) } as GenerateRequest;
    for await (const event of engine.submit(request)) {
      if (event.type !== "token") continue;
      if (times.length === 0) cpu = cpuMicros();
      times.push(performance.now());
      said.push(event.token);
    }
    return said.join();
  }));
  const rate = 1000 * times.length / (times.at(-1)! - times[0]);
  return { rate, pieces: piecesOf(times), cpu: cpuMicros() - cpu, texts: texts.join("\n") };
}

function piecesOf(times: readonly number[]): number[] {
  const at = (piece: number) => times[Math.round(piece / PIECES * (times.length - 1))];
  return Array.from({ length: PIECES }, (_, piece) => at(piece + 1) - at(piece));
}

function cpuMicros(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
