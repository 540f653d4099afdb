import { assert, assertEquals, assertRejects } from "@std/assert";
import type { LlmEngine } from "./engine.ts";
import { EventStream } from "./event_stream.ts";
import {
  collect,
  finishOf,
  generate,
  GREEDY,
  promptOf,
  quiet,
  settle,
  startEngine,
  stepByStep,
  tokensOf,
} from "../../testing/engine.ts";
import { DrawingBackend } from "../../testing/draws.ts";
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest } from "../api/request.ts";

/* Sequences take KV blocks as they grow. If blocks run out, some are preempted, which must not change any answer. */

/** Returns a request without a token limit, as chats often are. */
function endless(length: number, seed = length): GenerateRequest {
  return { prompt: promptOf(length, seed), ignoreEos: true, sampling: GREEDY };
}

/** Reads `count` tokens of an answer and leaves the iteration. */
async function leaveAfter(engine: LlmEngine, request: GenerateRequest, tokens: number): Promise<number[]> {
  const read: number[] = [];
  for await (const event of engine.submit(request)) {
    if (event.type === "token" && read.push(event.token) === tokens) break;
  }
  return read;
}

Deno.test("scheduler: 64 chats without maxTokens run together in a pool with memory for 12 full context windows", async () => {
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

Deno.test("preemption: preempts the newest batch request first, then the newest other one, and never the oldest", async () => {
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
    // All sequences decode together, so the lengths identify the remaining ones, interactive ones first.
    if (engine.stats().running < running) left.push(lengths());
  }
  // With 3 blocks each, all 12 are held. The longest sequence, "second", is the first to need another.
  assertEquals(left, [[95, 97, 94], [127, 129], [191]]);
  assertEquals(engine.stats().preemptions, 3);
  steps.release();
  await Promise.all(results);
  assertEquals(ended, ["first", "second", "early batch", "late batch"]);
  assertEquals(engine.stats().promptTokens, 29 + 30 + 31 + 32);
  assertEquals(engine.stats().kvBlocksUsed, 0);
  await engine.close();
});

/** Runs two requests in a pool with memory for one and a half requests, until the later request is preempted. */
async function withOnePreempted(
  limits: Parameters<typeof startEngine>[0] = {},
  change: Partial<GenerateRequest> = {},
) {
  const { engine, backend } = startEngine({ kvBlocks: 9, maxRows: 200, ...limits }, 288);
  const steps = stepByStep(backend);
  const stays = generate(engine, { ...endless(40), maxTokens: 150 });
  const abort = new AbortController();
  const iterator = engine.submit({ ...endless(41), signal: abort.signal, ...change })[Symbol.asyncIterator]();
  const first = iterator.next();
  await settle();
  while (engine.stats().preemptions === 0) await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting], [1, 1]);
  return { engine, backend, steps, stays, abort, iterator, first };
}

for (const way of ["return", "signal"] as const) {
  Deno.test(`${way}: frees the place of a preempted request at once`, async () => {
    const { engine, backend, steps, stays, abort, iterator } = await withOnePreempted();
    const held = engine.stats().kvBlocksUsed;
    const { tokens } = await lastStep(iterator, backend.steps.length);
    if (way === "return") await iterator.return!();
    else abort.abort();
    assertEquals([engine.stats().running, engine.stats().waiting], [1, 0]);
    assertEquals([engine.stats().kvBlocksUsed, backend.stopRequests], [held, 0]);
    if (way === "signal") {
      const { value } = await iterator.next();
      assertEquals([value.type, value.reason, value.usage.completionTokens], ["finish", "cancelled", tokens]);
    }
    steps.release();
    assertEquals((await stays).tokens, await greedy(40, 150));
    assertEquals(engine.stats().kvBlocksUsed, 0);
    await engine.close();
  });
}

/** Reads the published events of a sequence that got a token in each of `steps` steps but the last. */
async function lastStep(iterator: AsyncIterator<unknown>, steps: number): Promise<{ tokens: number }> {
  for (let read = 1; read < steps - 1; read++) await iterator.next();
  return { tokens: steps - 1 };
}

Deno.test("drain: a preempted request finishes", async () => {
  const { engine, steps, stays, iterator, first } = await withOnePreempted({}, { maxTokens: 130 });
  const drained = engine.drain(Infinity);
  steps.release();
  const events = [(await first).value];
  for (let next = await iterator.next(); !next.done; next = await iterator.next()) events.push(next.value);
  assertEquals(tokensOf(events), await greedy(41, 130));
  await stays;
  await drained;
  await engine.close();
});

Deno.test("close: cancels a preempted request", async () => {
  const { engine, backend, stays, iterator, first } = await withOnePreempted();
  const closed = engine.close();
  const events = [(await first).value];
  for (let next = await iterator.next(); !next.done; next = await iterator.next()) events.push(next.value);
  assertEquals(finishOf(events).reason, "cancelled");
  assertEquals((await stays).finish.reason, "cancelled");
  await closed;
  assert(backend.closed);
});

Deno.test("engine: a preempted request fails after its published tokens when the backend fails", async () => {
  const { engine, backend, steps, stays, iterator, first } = await withOnePreempted();
  backend.gate = () => Promise.reject(new Error("lost"));
  const failed = assertRejects(() => stays, EngineError);
  steps.release();
  await failed;
  assertEquals((await first).value.type, "token");
  await assertRejects(async () => {
    while (!(await iterator.next()).done);
  }, EngineError);
  await engine.close();
});

Deno.test("queue: a preempted request takes no place in the queue, and is not refused", async () => {
  const { engine, steps, stays, iterator } = await withOnePreempted({ parallel: 2, queue: 1 });
  const queued = generate(engine, { ...endless(5), maxTokens: 3 });
  await settle();
  assertEquals(engine.stats().waiting, 2);
  const refused = await assertRejects(() => generate(engine, endless(6)), EngineError);
  assertEquals(refused.message, "The queue is full (1 waiting): try again later");
  steps.release();
  assertEquals((await queued).tokens, await greedy(5, 3));
  await stays;
  await iterator.return!();
  await engine.close();
});

Deno.test("scheduler: a new request does not overtake a preempted one", async () => {
  const { engine, steps, stays, iterator, first } = await withOnePreempted({}, { maxTokens: 130 });
  const ended: string[] = [];
  const newcomer = generate(engine, { ...endless(5), maxTokens: 200 }).then(() => ended.push("newcomer"));
  steps.release();
  const events = [(await first).value];
  for (let next = await iterator.next(); !next.done; next = await iterator.next()) events.push(next.value);
  ended.push("preempted");
  await Promise.all([stays, newcomer]);
  assertEquals(ended, ["preempted", "newcomer"]);
  await engine.close();
});

Deno.test("preemption: a slow reader goes first, and resumes when half of its events are read", async () => {
  const { engine } = startEngine({ parallel: 2, kvBlocks: 70, maxRows: 200 }, 2200);
  const slow = engine.submit({ ...endless(10), maxTokens: 1500 })[Symbol.asyncIterator]();
  const events = [(await slow.next()).value];
  await quiet(engine); // 33 blocks
  const quick = await generate(engine, { ...endless(12), maxTokens: 1400 });
  assertEquals(quick.tokens.length, 1400);
  assertEquals([engine.stats().preemptions, engine.stats().running, engine.stats().waiting], [1, 0, 1]);
  const { steps } = engine.stats();
  for (let read = 0; read < EventStream.CAPACITY / 2 - 1; read++) events.push((await slow.next()).value);
  await quiet(engine);
  assertEquals(engine.stats().steps, steps);
  for (let next = await slow.next(); !next.done; next = await slow.next()) events.push(next.value);
  const alone = await generate(engine, { ...endless(10), maxTokens: 1500, cacheSalt: "alone" });
  assertEquals(tokensOf(events), alone.tokens);
  await engine.close();
});

Deno.test("preemption: no request is preempted for a request that would not fit even then", async () => {
  const { engine, backend } = startEngine({ parallel: 4, kvBlocks: 10, maxRows: 400 }, 320);
  const steps = stepByStep(backend);
  const first = generate(engine, { ...endless(100), maxTokens: 20 }); // 4 blocks
  const batch = generate(engine, { ...endless(40), maxTokens: 60, priority: "batch" }); // 2 blocks
  await settle();
  const large = generate(engine, { ...endless(250), maxTokens: 20 }); // 8 blocks: does not fit beside the first
  await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting, engine.stats().preemptions], [2, 1, 0]);
  steps.release();
  assertEquals((await large).tokens, await greedy(250, 20));
  assertEquals((await batch).tokens, await greedy(40, 60));
  assertEquals((await first).tokens, await greedy(100, 20));
  assertEquals(engine.stats().preemptions, 1); // the batch request, after the first had ended
  await engine.close();
});

Deno.test("several steps per call: take only free memory, and preempt no sequence", async () => {
  const { engine, backend } = startEngine({ kvBlocks: 6, maxRows: 200 }, 192, DrawingBackend);
  const limits = [33, 100]; // They end with two and four blocks.
  const results = await Promise.all(
    limits.map((maxTokens, i) => generate(engine, { ...endless(31 - 5 * i), maxTokens })),
  );
  for (const [i, { tokens }] of results.entries()) assertEquals(tokens, await greedy(31 - 5 * i, limits[i]));
  assert(backend.calls.some((steps) => steps > 1));
  assertEquals(engine.stats().preemptions, 0);
  const both = [0, 1].map((i) =>
    generate(engine, { ...endless(31 - 5 * i), maxTokens: 100, cacheSalt: "both" })
  );
  for (const [i, { tokens }] of (await Promise.all(both)).entries()) {
    assertEquals(tokens, await greedy(31 - 5 * i, 100));
  }
  assertEquals(engine.stats().preemptions, 1);
  await engine.close();
});

Deno.test("slow reader: its sequence takes no block while it pauses", async () => {
  const { engine } = startEngine({ kvBlocks: 70, maxRows: 200 }, 2200);
  const slow = engine.submit({ ...endless(32), maxTokens: 1500 })[Symbol.asyncIterator]();
  await slow.next();
  await quiet(engine);
  assertEquals(32 + engine.stats().generatedTokens, 33 * 32 + 1);
  await generate(engine, { ...endless(12), maxTokens: 3 });
  assertEquals(engine.stats().kvBlocksUsed, 33);
  await slow.return!();
  await engine.close();
});

Deno.test("logprobs: prompt scores do not change when the prompt is preempted half-way", async () => {
  const request = {
    ...endless(200),
    maxTokens: 5,
    logprobs: 2,
    promptLogprobs: true,
    priority: "batch",
  } as const;
  const told = (events: Awaited<ReturnType<typeof collect>>) =>
    events.filter(({ type }) => type === "prompt" || type === "token");
  const { engine, backend } = startEngine({ kvBlocks: 10, maxRows: 200, maxLogitRows: 4 }, 320);
  const wanted = told(await collect(engine.submit(request)));
  const steps = stepByStep(backend);
  const scored = collect(engine.submit({ ...request, cacheSalt: "again" }));
  for (let i = 0; i < 20; i++) await steps.next();
  const interactive = generate(engine, { ...endless(100), maxTokens: 100 });
  await steps.next();
  assertEquals([engine.stats().preemptions, engine.stats().waiting], [1, 1]);
  steps.release();
  assertEquals(told(await scored), wanted);
  assertEquals(wanted[0].type, "prompt");
  await interactive;
  await engine.close();
});

Deno.test("preemption: answers to one prompt share its blocks, and a preempted one frees only its own", async () => {
  const { engine, backend } = startEngine({ parallel: 4, kvBlocks: 16, maxRows: 400 }, 512);
  const request = { ...endless(320), maxTokens: 100 };
  const steps = stepByStep(backend);
  const seeds = [1, 2, 3, 4];
  const ask = (seed: number) => generate(engine, { ...request, sampling: { seed } });
  const results = seeds.map(ask); // 10 blocks for the prompt, and 4 for each answer
  await settle();
  while (engine.stats().preemptions === 0) await steps.next();
  assert(engine.stats().kvBlocksUsed >= 13);
  steps.release();
  const answers = await Promise.all(results);
  assertEquals(answers.map(({ finish }) => finish.usage.cachedTokens), [0, 288, 288, 288]);
  for (const [i, { tokens }] of answers.entries()) assertEquals(tokens, (await ask(seeds[i])).tokens);
  await engine.close();
});
