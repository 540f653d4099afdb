import { assert, assertEquals } from "@std/assert";
import type { LlmEngine } from "./engine.ts";
import { generate, GREEDY, promptOf, quiet, settle, startEngine, stepByStep } from "./testing.ts";
import type { GenerateRequest } from "./types.ts";

/* Sequences take KV blocks as they grow. Where blocks run out some are preempted, and nobody can tell from the answers. */

/** A request of a context without end, as chats are that set no limit. */
function endless(length: number, seed = length): GenerateRequest {
  return { prompt: promptOf(length, seed), ignoreEos: true, sampling: GREEDY };
}

/** Reads so many tokens of an answer and leaves. */
async function leaveAfter(engine: LlmEngine, request: GenerateRequest, tokens: number): Promise<number[]> {
  const read: number[] = [];
  for await (const event of engine.submit(request)) {
    if (event.type === "token" && read.push(event.token) === tokens) break;
  }
  return read;
}

Deno.test("64 chats without maxTokens run at once in a pool that holds 12 whole contexts", async () => {
  // The pool: 6 GB of Qwen3-0.6B's cache, 28 layers of 8 heads of 128, keys and values in f16.
  const kvBlocks = Math.floor(6e9 / (32 * 2 * 2 * 28 * 8 * 128));
  const limits = { parallel: 64, kvBlocks, maxRows: 512, maxLogitRows: 64 };
  assertEquals(Math.floor(kvBlocks / (4096 / 32)), 12);
  const { engine, backend } = startEngine(limits, 4096);
  const chats = Array.from({ length: 64 }, (_, i) => leaveAfter(engine, endless(20 + i), 300));
  await settle();
  assertEquals([engine.stats().running, engine.stats().waiting], [64, 0]);
  for (const [i, tokens] of (await Promise.all(chats)).entries()) {
    assertEquals(tokens.length, 300);
    if (i % 8 === 0) assertEquals(tokens.slice(0, 40), await greedy(20 + i, 40));
  }
  await quiet(engine);
  assertEquals([engine.stats().preemptions, engine.stats().kvBlocksUsed], [0, 0]);
  assert(backend.steps.length < 320, `${backend.steps.length} steps for answers of 300 tokens`);
  await engine.close();
});

async function greedy(length: number, tokens: number): Promise<number[]> {
  const { engine } = startEngine();
  const { tokens: answer } = await generate(engine, { ...endless(length), maxTokens: tokens });
  await engine.close();
  return answer;
}

Deno.test("the latest batch request gives way first, then the latest other one; the earliest never does", async () => {
  const { engine, backend } = startEngine({ parallel: 4, kvBlocks: 12, maxRows: 200 }, 384);
  const ended: string[] = [];
  const ask = async (name: string, length: number, priority?: "batch") => {
    const { tokens, finish } = await generate(engine, { ...endless(length), maxTokens: 200, priority });
    assertEquals(tokens, await greedy(length, 200), name);
    assertEquals(finish.usage, { promptTokens: length, completionTokens: 200, cachedTokens: 0 });
    ended.push(name);
  };
  const steps = stepByStep(backend);
  const results = [ask("early batch", 29, "batch"), ask("first", 30), ask("late batch", 31, "batch")];
  results.push(ask("second", 32));
  await settle();
  const lengths = () => backend.steps.at(-1)!.map(({ cached, length }) => cached + length);
  assertEquals(lengths(), [30, 32, 29, 31]);
  const left: number[][] = [];
  for (let running = 4; running > 1; running = engine.stats().running) {
    await steps.next();
    // Who computes: all decode together, so that the lengths tell who is left, those of interactive ones first.
    if (engine.stats().running < running) left.push(lengths());
  }
  // With 3 blocks each, all 12 are held; who first needs another is the longest, "second".
  assertEquals(left, [[95, 97, 94], [127, 129], [191]]);
  assertEquals(engine.stats().preemptions, 3);
  steps.release();
  await Promise.all(results);
  assertEquals(ended, ["first", "second", "early batch", "late batch"]);
  assertEquals(engine.stats().promptTokens, 29 + 30 + 31 + 32);
  assertEquals(engine.stats().kvBlocksUsed, 0);
  await engine.close();
});
