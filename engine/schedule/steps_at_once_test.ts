import { assert, assertEquals } from "@std/assert";
import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import {
  collect,
  expectedTokens,
  fakeGreedy,
  generate,
  GREEDY,
  promptOf,
  startEngine,
  tokensOf,
} from "../../testing/engine.ts";
import { DrawingBackend } from "../../testing/draws.ts";

/* A backend that samples tokens computes several steps per call. The answers must equal those of single steps. */

const start = (limits: Parameters<typeof startEngine>[0] = {}) => startEngine(limits, 1024, DrawingBackend);

Deno.test("several steps per call: greedy answers, ends and lengths equal those of single steps", async () => {
  const { engine, backend } = start({ parallel: 8 });
  const lengths = [1, 2, 31, 32, 33, 64, 65, 90];
  const results = await Promise.all(lengths.map((length, i) => {
    const prompt = promptOf(length, i);
    return generate(engine, { prompt, maxTokens: 40 + 7 * i, sampling: GREEDY });
  }));
  for (const [i, { tokens, finish }] of results.entries()) {
    const prompt = promptOf(lengths[i], i);
    assertEquals(tokens, expectedTokens(prompt, 40 + 7 * i), `prompt of ${lengths[i]}`);
    assertEquals(finish.usage.completionTokens, fakeGreedy(prompt, 40 + 7 * i).length);
  }
  assert(Math.max(...backend.calls) > 1, "never several steps at once");
  const { steps, submits, kvBlocksUsed } = engine.stats();
  assert(submits < steps && steps === backend.steps.length);
  assertEquals(kvBlocksUsed, 0);
  await engine.close();
});

Deno.test("several steps per call: only computed blocks are shared after an early end", async () => {
  const { engine } = start();
  const prompt = promptOf(40, 2);
  const answer = fakeGreedy(prompt, 100);
  const { tokens } = await generate(engine, { prompt, maxTokens: 100, sampling: GREEDY });
  const follow = [...prompt, ...tokens, ...promptOf(9, 4)];
  const { tokens: next, finish } = await generate(engine, {
    prompt: follow,
    maxTokens: 30,
    sampling: GREEDY,
  });
  assertEquals(next, expectedTokens(follow, 30));
  const computed = prompt.length + answer.length - 1; // the last token was never a row
  assert(finish.usage.cachedTokens <= computed, `${finish.usage.cachedTokens} of ${computed} tokens reused`);
  await engine.close();
});

Deno.test("several steps per call: a stop string ends the answer in the middle of a call", async () => {
  const { engine } = start();
  const request = { prompt: promptOf(12, 6), maxTokens: 60, sampling: GREEDY, ignoreEos: true };
  const whole = await generate(engine, request);
  const stop = [...whole.text].slice(20, 22).join("");
  const { text, finish } = await generate(engine, { ...request, stop: [stop] });
  assertEquals(text, whole.text.slice(0, whole.text.indexOf(stop)));
  assertEquals(finish.reason, "stop");
  await engine.close();
});

Deno.test("several steps per call: requests that need the CPU run step by step", async () => {
  const { engine, backend } = start();
  const request = { prompt: promptOf(12), maxTokens: 20, ignoreEos: true };
  await generate(engine, { ...request, sampling: { ...GREEDY, repetitionPenalty: 1.1 } });
  assertEquals(backend.calls, []);
  await Promise.all([
    generate(engine, { ...request, sampling: GREEDY }),
    generate(engine, { ...request, prompt: promptOf(12, 9), sampling: { presencePenalty: 1 } }),
  ]);
  assertEquals(backend.calls, []);
  await engine.close();
});

Deno.test("several steps per call: seeded answers depend only on the seed", async () => {
  const { engine } = start();
  const request = { prompt: promptOf(40), maxTokens: 40, sampling: { seed: 11 } };
  const alone = await generate(engine, request);
  const [other, again] = await Promise.all([
    generate(engine, { ...request, sampling: { seed: 12 } }),
    generate(engine, request),
    generate(engine, { ...request, prompt: promptOf(90, 5), sampling: { seed: 1, frequencyPenalty: 1 } }),
  ]);
  assertEquals(again.tokens, alone.tokens);
  assert(other.tokens.join() !== alone.tokens.join());
  await engine.close();
});

Deno.test("several steps per call: log-probabilities do not change a seeded answer", async () => {
  const { engine, backend } = start();
  const request = { prompt: promptOf(40), maxTokens: 40, ignoreEos: true, sampling: { seed: 11 } };
  const plain = await generate(engine, request);
  const calls = backend.calls.length;
  const scored = await generate(engine, { ...request, logprobs: 3 });
  assertEquals(scored.tokens, plain.tokens);
  assert(backend.calls.length > calls, "never several steps at once");
  await engine.close();
});

Deno.test("several steps per call: a call ends where a snapshot of the recurrent state is due", async () => {
  const { engine, backend } = start({ stateSlots: 12 });
  const prompt = promptOf(KV_BLOCK_TOKENS - 3, 8);
  const answer = fakeGreedy(prompt, 80);
  const first = collect(engine.submit({ prompt, maxTokens: 80, sampling: GREEDY }));
  const shared = [...prompt, ...answer.slice(0, 12)];
  const results = await Promise.all([
    first,
    collect(engine.submit({ prompt: [...shared, 1, 2, 3], maxTokens: 50, sampling: GREEDY })),
  ]);
  assertEquals(tokensOf(results[0]), expectedTokens(prompt, 80));
  assertEquals(tokensOf(results[1]), expectedTokens([...shared, 1, 2, 3], 50));
  assert(backend.calls.length > 0);
  await engine.close();
});

Deno.test("several steps per call: a cancelled request ends with its call, and others continue", async () => {
  const { engine } = start();
  const abort = new AbortController();
  const cancelled = engine.submit({
    prompt: promptOf(9, 1),
    sampling: { ...GREEDY },
    ignoreEos: true,
    signal: abort.signal,
  });
  const other = generate(engine, { prompt: promptOf(20, 2), maxTokens: 90, sampling: GREEDY });
  let last;
  for await (const event of cancelled) {
    if (event.type === "token") abort.abort();
    last = event;
  }
  assert(last?.type === "finish" && last.reason === "cancelled");
  assertEquals((await other).tokens, expectedTokens(promptOf(20, 2), 90));
  assertEquals(engine.stats().kvBlocksUsed, 0);
  await engine.close();
});
