import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { loadEngine } from "../engine/load.ts";
import { type Engine, KV_TYPES, type KvType } from "../engine/types.ts";
import { instructionSets } from "./kernel_model.ts";
import { Random } from "./random.ts";
import { synthesize } from "./synth.ts";

/* The whole engine on small models: who else is computed, and what is cached, changes no bit of an answer. */

const DEMO_MODEL = fromFileUrl(new URL("../models/demo.gguf", import.meta.url));
const CROWD = 8;

interface Wanted {
  readonly prompt: number[];
  readonly maxTokens: number;
}

/** Each token with its log-probability, and the likeliest with theirs. */
type Answer = number[][];

/** Prompts from one token to several KV blocks. Half begin alike, so that some find their beginning in the cache. */
function wantedOf(vocabSize: number, common: number): Wanted[] {
  const random = new Random(7);
  const below = (limit: number) => random.word() % limit;
  const shared = Array.from({ length: common }, () => below(vocabSize));
  return Array.from({ length: CROWD }, (_, i) => {
    const own = Array.from({ length: 1 + below(1 + 6 * i) }, () => below(vocabSize));
    return { prompt: i % 2 === 0 ? own : [...shared, ...own], maxTokens: 5 + below(10) };
  });
}

/** `salt`: requests of equal salt share what they have in common. */
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

interface Way {
  readonly isa: string;
  readonly threads: number;
  readonly kvType?: KvType;
  /** Tokens that half of the prompts begin with. */
  readonly common?: number;
}

async function answersOf(model: string, { common = 70, ...way }: Way): Promise<Answer[]> {
  const { isa, threads } = way;
  const { engine } = await loadEngine({ ...way, model, contextLength: common + 128, parallel: CROWD });
  try {
    const wanted = wantedOf(engine.model.vocabSize, common);
    const alone: Answer[] = [];
    for (const [i, one] of wanted.entries()) alone.push(await ask(engine, one, `alone ${i}`));
    const random = new Random(threads);
    // All together, in another order, some steps apart; the second time their prompts are cached.
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

for (const isa of instructionSets()) {
  Deno.test(`${isa}: alone, in a crowd, cached, on 1, 2 or 3 threads: the same answers to the bit`, async () => {
    const one = await answersOf(DEMO_MODEL, { isa, threads: 1 });
    assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 2 }), one);
    assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 3 }), one);
  });
}

// So much in common that sequences go through it together when they decode.
Deno.test("a KV cache in 8 bits, alone, in a crowd, cached, on 1 or 2 threads: the same answers to the bit", async () => {
  for (const isa of instructionSets()) {
    const one = await answersOf(DEMO_MODEL, { isa, threads: 1, kvType: "q8_0", common: 140 });
    assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 2, kvType: "q8_0", common: 140 }), one);
  }
});

Deno.test("a hybrid, whose prefixes are shared by snapshots: the same answers to the bit", async () => {
  const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(model, synthesize({ architecture: "qwen35", seed: 3, types: ["Q8_0"] }));
    const [isa] = instructionSets();
    for (const kvType of KV_TYPES) {
      const one = await answersOf(model, { isa, kvType, threads: 1 });
      assertEquals(await answersOf(model, { isa, kvType, threads: 2 }), one);
    }
  } finally {
    await Deno.remove(model);
  }
});
