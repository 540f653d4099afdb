import { assert, assertEquals, assertRejects } from "@std/assert";
import { StepStopped } from "../backend/backend.ts";
import { EventStream } from "./event_stream.ts";
import {
  collect,
  expectedTokens,
  finishOf,
  generate,
  GREEDY,
  promptOf,
  quiet,
  settle,
  startEngine,
  stepByStep,
  textOf,
  tokensOf,
} from "../../testing/engine.ts";
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest } from "../api/request.ts";

/** Returns a request whose answer continues until it is stopped. */
function endless(length: number, seed = 0): GenerateRequest {
  return { prompt: promptOf(length, seed), maxTokens: 800, ignoreEos: true, sampling: GREEDY };
}

async function rejection(promise: Promise<unknown>): Promise<EngineError> {
  return await assertRejects(() => promise, EngineError);
}

Deno.test("engine: fails at once when the device is lost while nothing runs", async () => {
  const { engine, backend } = startEngine();
  await generate(engine, { ...endless(4), maxTokens: 3 });
  assertEquals([engine.state, engine.stats().deviceLosses], ["ready", 0]);
  backend.lose();
  await settle();
  assertEquals([engine.state, engine.failure?.code], ["failed", "device_lost"]);
  assertEquals(engine.stats().deviceLosses, 1);
  await engine.close();
});

Deno.test("engine: a lost device ends all streams with device_lost, but does nothing after close", async () => {
  const { engine, backend } = startEngine();
  const streams = [0, 1, 2].map((seed) => rejection(generate(engine, endless(4, seed))));
  await settle();
  backend.lose();
  for (const { code, message } of await Promise.all(streams)) {
    assertEquals([code, message], ["device_lost", "The device was lost"]);
  }
  await settle();
  assertEquals([engine.state, engine.stats().running, engine.stats().deviceLosses], ["failed", 0, 1]);
  await engine.close();

  const closed = startEngine();
  await closed.engine.close();
  closed.backend.lose();
  await settle();
  assertEquals(closed.engine.state, "draining");
});

Deno.test("submit: queues nothing before the first next()", async () => {
  const { engine } = startEngine();
  const events = engine.submit(endless(4));
  await settle();
  assertEquals([engine.stats().waiting, engine.stats().running], [0, 0]);
  const iterator = events[Symbol.asyncIterator]();
  await iterator.return!();
  assertEquals(await iterator.next(), { value: undefined, done: true });
  assertEquals(engine.stats().steps, 0);
  await engine.close();
});

for (const way of ["return", "signal"] as const) {
  /** Begins a request. The returned `leave` ends the request by return() or by its signal. */
  const begin = (engine: ReturnType<typeof startEngine>["engine"], request: GenerateRequest) => {
    const abort = new AbortController();
    const iterator = engine.submit({ ...request, signal: abort.signal })[Symbol.asyncIterator]();
    const first = iterator.next();
    const leave = () => way === "return" ? iterator.return!() : abort.abort();
    return { iterator, first, leave };
  };

  Deno.test(`${way}: frees the place in the queue at once when the request is queued`, async () => {
    const { engine, backend } = startEngine({ parallel: 1 });
    const steps = stepByStep(backend);
    const running = begin(engine, endless(10));
    const queued = begin(engine, endless(10, 1));
    await settle();
    assertEquals(engine.stats().waiting, 1);
    queued.leave();
    assertEquals(engine.stats().waiting, 0);
    assertEquals(backend.stopRequests, 0);
    if (way === "signal") assertEquals((await queued.first).value.reason, "cancelled");
    running.leave();
    steps.release();
    await engine.close();
  });

  Deno.test(`${way}: stops the step and frees the memory during prefill of a long prompt`, async () => {
    const { engine, backend } = startEngine({ maxRows: 16 });
    const steps = stepByStep(backend);
    const request = begin(engine, endless(500));
    await settle();
    await steps.next();
    request.leave();
    assertEquals(backend.stopRequests, 1);
    await settle();
    assertEquals([engine.stats().running, engine.stats().kvBlocksUsed, engine.stats().steps], [0, 0, 2]);
    if (way === "signal") {
      const events = [(await request.first).value, (await request.iterator.next()).value];
      assertEquals(events.map(({ type }) => type), ["progress", "finish"]);
      assertEquals(events[1].usage.completionTokens, 0);
    }
    steps.release();
    await engine.close();
  });

  Deno.test(`${way}: frees the slot at the end of the step when others decode too`, async () => {
    const { engine, backend } = startEngine();
    const steps = stepByStep(backend);
    const stays = generate(engine, { ...endless(20, 3), maxTokens: 30 });
    const leaves = begin(engine, endless(20, 4));
    await settle();
    for (let i = 0; i < 3; i++) await steps.next();
    assertEquals([engine.stats().running, engine.stats().generatedTokens], [2, 6]);
    leaves.leave();
    assertEquals(backend.stopRequests, 0);
    await steps.next();
    assertEquals([engine.stats().running, engine.stats().generatedTokens], [1, 7]);
    await steps.next();
    assertEquals(backend.steps.at(-1)!.length, 1);
    steps.release();
    assertEquals((await stays).tokens.length, 30);
    assertEquals(engine.stats().kvBlocksUsed, 0);
    await engine.close();
  });
}

Deno.test("cancel: the step is stopped when all its sequences are cancelled", async () => {
  const { engine, backend } = startEngine();
  const steps = stepByStep(backend);
  const aborts = [new AbortController(), new AbortController()];
  const results = aborts.map(({ signal }, i) => generate(engine, { ...endless(20, i), signal }));
  await settle();
  await steps.next();
  aborts[0].abort();
  assertEquals(backend.stopRequests, 0);
  aborts[1].abort();
  assertEquals(backend.stopRequests, 1);
  const reasons = (await Promise.all(results)).map(({ finish }) => finish.reason);
  assertEquals(reasons, ["cancelled", "cancelled"]);
  await settle();
  assertEquals(engine.stats().kvBlocksUsed, 0);
  steps.release();
  await engine.close();
});

Deno.test("cancel: a request with an aborted signal ends without work", async () => {
  const { engine, backend } = startEngine();
  const { finish } = await generate(engine, { ...endless(20), signal: AbortSignal.abort() });
  assertEquals([finish.reason, finish.usage.completionTokens, backend.rows], ["cancelled", 0, 0]);
  await engine.close();
});

Deno.test("cancel: a cancelled answer publishes the text that was held back", async () => {
  const { engine, backend } = startEngine();
  const steps = stepByStep(backend);
  const abort = new AbortController();
  const request = { ...endless(20, 2), signal: abort.signal };
  const wanted = engine.tokenizer.decode(expectedTokens(request.prompt, 4));
  const events = collect(engine.submit({ ...request, stop: [wanted + "never"] }));
  await settle();
  for (let i = 0; i < 4; i++) await steps.next();
  abort.abort();
  assertEquals(textOf(await events), wanted);
  steps.release();
  await engine.close();
});

Deno.test("submit: removes its abort listeners from the signal", async () => {
  const { engine } = startEngine();
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener: add, removeEventListener: remove } = signal;
  signal.addEventListener = (...args: Parameters<typeof add>) => (listeners++, add.apply(signal, args));
  signal.removeEventListener = (
    ...args: Parameters<typeof remove>
  ) => (listeners--, remove.apply(signal, args));
  for (let i = 0; i < 5; i++) await generate(engine, { prompt: promptOf(5), maxTokens: 2, signal });
  assertEquals(listeners, 0);
  await engine.close();
});

Deno.test("queue: refuses requests when full, and accepts them when a place is free again", async () => {
  const { engine, backend } = startEngine({ parallel: 2, queue: 3 });
  const steps = stepByStep(backend);
  const accepted = Array.from({ length: 5 }, (_, i) => generate(engine, { ...endless(5, i), maxTokens: 3 }));
  await settle();
  const refused = await rejection(generate(engine, endless(5)));
  assertEquals([refused.code, refused.message], [
    "queue_full",
    "The queue is full (3 waiting): try again later",
  ]);
  steps.release();
  await Promise.all(accepted);
  assertEquals((await generate(engine, { ...endless(5), maxTokens: 1 })).tokens.length, 1);
  await engine.close();
});

Deno.test("slow reader: its sequence pauses while others run, and loses no event", async () => {
  const { engine } = startEngine({ kvBlocks: 200 }, 3000);
  const request = { ...endless(10), maxTokens: 2000 };
  const slow = engine.submit(request)[Symbol.asyncIterator]();
  const first = await slow.next();
  assert(!first.done);
  const quick = await generate(engine, { ...endless(10, 1), maxTokens: 1900 });
  assertEquals(quick.tokens.length, 1900);
  await settle();
  assertEquals([engine.stats().running, engine.stats().generatedTokens], [
    1,
    1900 + 1 + EventStream.CAPACITY,
  ]);
  const events = [first.value];
  for (let next = await slow.next(); !next.done; next = await slow.next()) events.push(next.value);
  assertEquals(tokensOf(events), (await generate(engine, request)).tokens);
  assertEquals(finishOf(events).reason, "length");
  await engine.close();
});

Deno.test("slow reader: loses its slot to others, and continues where it stopped", async () => {
  const { engine } = startEngine({ parallel: 1, kvBlocks: 100 }, 3000);
  const request = { ...endless(10), maxTokens: 1300, sampling: { seed: 4 } };
  const slow = engine.submit(request)[Symbol.asyncIterator]();
  const events = [(await slow.next()).value];
  await quiet(engine);
  const quick = await generate(engine, { ...endless(10, 1), maxTokens: 50, priority: "batch" });
  assertEquals(quick.tokens.length, 50);
  assertEquals([engine.stats().running, engine.stats().waiting], [0, 1]);
  for (let next = await slow.next(); !next.done; next = await slow.next()) events.push(next.value);
  assertEquals(tokensOf(events), (await generate(engine, request)).tokens);
  await engine.close();
});

Deno.test("slow reader: another request does not wait for a KV block that the paused sequence has not computed", async () => {
  const { engine } = startEngine({ kvBlocks: 200 }, 3000);
  const request = {
    ...endless(31),
    sampling: { ...GREEDY, logitBias: new Map([[65, 1000]]) },
    maxTokens: 2000,
  };
  const slow = engine.submit(request)[Symbol.asyncIterator]();
  await slow.next();
  await quiet(engine);
  assertEquals(31 + engine.stats().generatedTokens, 33 * 32);
  const prompt = [...request.prompt, ...new Array(1100).fill(65)];
  const { finish } = await generate(engine, { ...request, prompt, maxTokens: 1 });
  assertEquals(finish.usage.cachedTokens, 32 * 32);
  await slow.return!();
  await engine.close();
});

Deno.test("engine: running, waiting and later requests fail when the backend fails", async () => {
  const { engine, backend } = startEngine({ parallel: 1 });
  const steps = stepByStep(backend);
  const running = collect(engine.submit(endless(5)));
  const waiting = collect(engine.submit(endless(5, 1)));
  await settle();
  await steps.next();
  backend.gate = () => Promise.reject(new Error("out of memory"));
  steps.release();
  for (const promise of [running, waiting]) {
    const error = await rejection(promise);
    assertEquals([error.code, error.message], ["engine_failed", "The engine has failed: out of memory"]);
    assert(error.cause instanceof Error);
  }
  assertEquals((await rejection(generate(engine, endless(5)))).code, "engine_failed");
  assertEquals([engine.stats().running, engine.stats().waiting, engine.stats().kvBlocksUsed], [0, 0, 0]);
  await engine.drain(1000);
  await engine.close();
  assert(backend.closed);
});

Deno.test("engine: is ready until its backend fails, and then reports the failure", async () => {
  const { engine, backend } = startEngine();
  const heard: string[] = [];
  const unlisten = engine.onState((state) => heard.push(state));
  assertEquals([engine.state, engine.failure], ["ready", undefined]);
  backend.gate = () => Promise.reject(new Error("out of memory"));
  const error = await rejection(generate(engine, endless(5)));
  assertEquals([engine.state, heard.join()], ["failed", "failed"]);
  assertEquals(engine.failure, error);
  unlisten();
  await engine.close();
  assertEquals([engine.state, heard.join()], ["draining", "failed"]);
});

Deno.test("engine: reports draining once, even if the backend fails afterwards", async () => {
  const { engine, backend } = startEngine();
  const heard: string[] = [];
  engine.onState((state) => heard.push(state));
  const steps = stepByStep(backend);
  const running = generate(engine, endless(5));
  await settle();
  const drained = engine.drain(1000);
  assertEquals(engine.state, "draining");
  backend.gate = () => Promise.reject(new Error("lost"));
  steps.release();
  assertEquals((await rejection(running)).code, "engine_failed");
  await drained;
  await engine.close();
  assertEquals([engine.state, heard.join()], ["draining", "draining"]);
});

Deno.test("EventStream: unread events come before the error", async () => {
  const { engine, backend } = startEngine();
  const steps = stepByStep(backend);
  const iterator = engine.submit(endless(5))[Symbol.asyncIterator]();
  const first = iterator.next();
  await settle();
  for (let i = 0; i < 3; i++) await steps.next();
  backend.gate = () => Promise.reject(new Error("lost"));
  steps.release();
  await settle();
  const events = [await first, await iterator.next(), await iterator.next(), await iterator.next()];
  assertEquals(events.map(({ value }) => value.type), ["token", "token", "token", "token"]);
  assertEquals((await rejection(iterator.next())).code, "engine_failed");
  assertEquals((await iterator.next()).done, true);
  await engine.close();
});

Deno.test("engine: unusable logits fail only their request", async () => {
  const { engine, backend } = startEngine();
  const step = backend.step.bind(backend);
  backend.step = async (input) => {
    const { rows } = await step(input);
    const isBad = (row: number) => input.tokens[row] === 7;
    return { rows: rows.map((row, i) => isBad(input.logits[i].row) ? { ...row, logSumExp: NaN } : row) };
  };
  const good = generate(engine, { ...endless(9), maxTokens: 1 });
  const error = await rejection(generate(engine, { prompt: [1, 7] }));
  assertEquals(error.code, "engine_failed");
  assertEquals((await good).tokens.length, 1);
  assertEquals(engine.stats().kvBlocksUsed, 0);
  await engine.close();
});

Deno.test("drain: finishes all requests and refuses new ones", async () => {
  const { engine, backend } = startEngine({ parallel: 1 });
  const results = [1, 2, 3].map((seed) => generate(engine, { ...endless(5, seed), maxTokens: 5 }));
  await settle();
  const drained = engine.drain(Infinity);
  assertEquals((await rejection(generate(engine, endless(5)))).code, "engine_closed");
  for (const { finish } of await Promise.all(results)) assertEquals(finish.reason, "length");
  await drained;
  await engine.close();
  assert(backend.closed);
});

Deno.test("drain: cancels the remaining requests after the grace period", async () => {
  const { engine, backend } = startEngine({ parallel: 1 });
  backend.gate = () => new Promise((resolve) => setTimeout(resolve, 1));
  const results = [1, 2].map((seed) => generate(engine, endless(5, seed)));
  await engine.drain(20);
  for (const { finish } of await Promise.all(results)) assertEquals(finish.reason, "cancelled");
  assertEquals([engine.stats().running, engine.stats().waiting], [0, 0]);
  await engine.close();
});

Deno.test("close: cancels requests, waits for the current step and closes the backend once", async () => {
  const { engine, backend } = startEngine();
  stepByStep(backend);
  const result = generate(engine, endless(5));
  await settle();
  await Promise.all([engine.close(), engine.close()]);
  assertEquals((await result).finish.reason, "cancelled");
  assert(backend.closed);
  assertEquals((await rejection(generate(engine, endless(5)))).code, "engine_closed");
});

Deno.test("engine: a step that stops without being asked to is computed again", async () => {
  const { engine, backend } = startEngine();
  let stops = 3;
  backend.gate = () => stops-- > 0 ? Promise.reject(new StepStopped()) : Promise.resolve();
  const { tokens } = await generate(engine, { prompt: promptOf(70), maxTokens: 9, sampling: GREEDY });
  assertEquals(tokens, expectedTokens(promptOf(70), 9));
  await engine.close();
});
