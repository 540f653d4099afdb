import { assert, assertEquals } from "@std/assert";
import { KV_BLOCK_TOKENS } from "./backend/backend.ts";
import {
  EOS,
  expectedTokens,
  fakeGreedy,
  generate,
  GREEDY,
  promptOf,
  settle,
  startEngine,
} from "./testing.ts";

Deno.test("a greedy answer is the model's, for prompts of one token, of whole blocks and of many steps", async () => {
  const { engine } = startEngine();
  for (const length of [1, 2, 31, 32, 33, 63, 64, 65, 200, 500]) {
    const prompt = promptOf(length, length);
    const { tokens, finish } = await generate(engine, { prompt, maxTokens: 70, sampling: GREEDY });
    assertEquals(tokens, expectedTokens(prompt, 70), `prompt of ${length}`);
    assertEquals(finish.reason, fakeGreedy(prompt, 70).includes(EOS) ? "stop" : "length");
    assertEquals(finish.usage.promptTokens, length);
    assertEquals(finish.usage.completionTokens, fakeGreedy(prompt, 70).length);
  }
  assertEquals(engine.stats().kvBlocksUsed, 0);
  await engine.close();
});

Deno.test("a crowd with random arrivals, cancellations and preemptions changes nobody's text", async () => {
  const { engine } = startEngine({ parallel: 5, kvBlocks: 24, maxRows: 40 });
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48271) % 0x7fffffff) % below;
  const shared = promptOf(70, 99);
  const one = async (i: number) => {
    for (let wait = random(60); wait > 0; wait--) await settle();
    const prompt = [...shared.slice(0, random(71)), ...promptOf(1 + random(90), i)];
    const maxTokens = 1 + random(60);
    const leaveAfter = random(4) === 0 ? random(30) : Infinity;
    const tokens: number[] = [];
    let left = false;
    const priority = random(2) ? "batch" : "interactive";
    for await (const event of engine.submit({ prompt, maxTokens, sampling: GREEDY, priority })) {
      if (event.type === "token") tokens.push(event.token);
      if ((left = tokens.length >= leaveAfter)) break;
    }
    const wanted = expectedTokens(prompt, maxTokens);
    assertEquals(tokens, left ? wanted.slice(0, tokens.length) : wanted);
  };
  for (let round = 0; round < 5; round++) {
    await Promise.all(Array.from({ length: 16 }, (_, i) => one(round * 16 + i)));
  }
  await settle();
  assertEquals(engine.stats().kvBlocksUsed, 0);
  assertEquals([engine.stats().running, engine.stats().waiting], [0, 0]);
  await engine.close();
});

Deno.test("sampled text depends on the seed, not on the company", async () => {
  const { engine } = startEngine();
  const request = { prompt: promptOf(40), maxTokens: 40, sampling: { seed: 11 } };
  const alone = await generate(engine, request);
  const crowd = await Promise.all([
    generate(engine, { ...request, sampling: { seed: 12 } }),
    generate(engine, request),
    generate(engine, { ...request, prompt: promptOf(90, 5) }),
    generate(engine, { ...request, priority: "batch" }),
  ]);
  assertEquals(crowd[1].tokens, alone.tokens);
  assertEquals(crowd[3].tokens, alone.tokens);
  assert(crowd[0].tokens.join() !== alone.tokens.join());
  await engine.close();
});

Deno.test("requests with one prefix compute it once", async () => {
  const { engine, backend } = startEngine({ parallel: 16, maxLogitRows: 16, kvBlocks: 200 });
  const prefix = promptOf(150, 3);
  const prompts = Array.from({ length: 16 }, (_, i) => [...prefix, ...promptOf(5, i)]);
  const results = await Promise.all(
    prompts.map((prompt) => generate(engine, { prompt, maxTokens: 1, sampling: GREEDY, priority: "batch" })),
  );
  results.forEach(({ tokens }, i) => assertEquals(tokens, expectedTokens(prompts[i], 1)));
  const whole = Math.floor(150 / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
  assertEquals(backend.rows, whole + 16 * (155 - whole));
  assertEquals(
    results.map(({ finish }) => finish.usage.cachedTokens).sort(),
    [0, ...new Array(15).fill(whole)].sort(),
  );
  assertEquals(engine.stats().cachedTokens, 15 * whole);
  await engine.close();
});
