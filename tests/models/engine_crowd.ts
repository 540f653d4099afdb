/** Concurrent requests on the whole engine. Each answer must equal the answer alone. */
import { assert, assertEquals } from "@std/assert";
import { loadOnNodes } from "../../engine/load/load_nodes.ts";
import type { Engine, KvType } from "../../engine/mod.ts";
import { Random } from "../../testing/random.ts";

const CROWD = 8;

interface Wanted {
  readonly prompt: number[];
  readonly maxTokens: number;
}

/** The tokens of an answer with their alternatives and log-probabilities. */
export type Answer = number[][];

/** Prompts from one token to several KV blocks. Half share a beginning, so that some hit the prefix cache. */
function wantedOf(vocabSize: number, common: number): Wanted[] {
  const random = new Random(7);
  const below = (limit: number) => random.word() % limit;
  const shared = Array.from({ length: common }, () => below(vocabSize));
  return Array.from({ length: CROWD }, (_, i) => {
    const own = Array.from({ length: 1 + below(1 + 6 * i) }, () => below(vocabSize));
    return { prompt: i % 2 === 0 ? own : [...shared, ...own], maxTokens: 5 + below(10) };
  });
}

/** `salt`: requests with the same salt share cached prefixes. */
async function ask(engine: Engine, { prompt, maxTokens }: Wanted, salt: string): Promise<Answer> {
  const answer: Answer = [];
  const options = { sampling: { temperature: 0 }, ignoreEos: true, logprobs: 3, cacheSalt: salt };
  for await (const event of engine.submit({ prompt, maxTokens, ...options })) {
    if (event.type !== "token") continue;
    answer.push([
      event.token,
      event.logprob!,
      ...event.top!.flatMap(({ token, logprob }) => [token, logprob]),
    ]);
  }
  assertEquals(answer.length, maxTokens);
  return answer;
}

/** Waits for some steps of the engine, or until nothing runs. */
async function pass(engine: Engine, steps: number): Promise<void> {
  const end = engine.stats().steps + steps;
  while (engine.stats().steps < end && engine.stats().running > 0) await new Promise((r) => setTimeout(r));
}

export interface Way {
  readonly isa: string;
  readonly threads: number;
  /** NUMA nodes, as the option `numa` names them; by default one engine. */
  readonly numa?: string;
  readonly kvType?: KvType;
  /** Number of beginning tokens that half of the prompts share. */
  readonly common?: number;
}

/**
 * Answers each request alone, then all requests together, twice. Throws if the answers differ in a bit. Returns the
 * answers.
 */
export async function answersOf(model: string, { common = 70, ...way }: Way): Promise<Answer[]> {
  const { isa, threads } = way;
  const backend = isa.startsWith("wasm") ? "wasm" : "cpu";
  const { engine } = await loadOnNodes({
    numa: "off",
    ...way,
    backend,
    model,
    contextLength: common + 128,
    parallel: CROWD,
  });
  try {
    const wanted = wantedOf(engine.model.vocabSize, common);
    const alone: Answer[] = [];
    for (const [i, one] of wanted.entries()) alone.push(await ask(engine, one, `alone ${i}`));
    const random = new Random(threads);
    // All requests together, in another order, with some steps between their starts. The second round finds the prompts
    // in the cache.
    for (let round = 0; round < 2; round++) {
      const order = wanted.map((_, i) => ({ i, key: random.word() })).sort((a, b) => a.key - b.key);
      const together: Promise<Answer>[] = [];
      for (const { i } of order) {
        together[i] = ask(engine, wanted[i], "crowd");
        await pass(engine, random.word() % 4);
      }
      assertEquals(await Promise.all(together), alone, `${isa}, ${threads} threads, round ${round}`);
    }
    assert(engine.stats().cachedTokens > 0);
    return alone;
  } finally {
    await engine.close();
  }
}
