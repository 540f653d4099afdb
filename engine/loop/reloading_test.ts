import { assert, assertEquals, assertRejects } from "@std/assert";
import { ReloadingEngine, type ReloadOptions } from "./reloading.ts";
import { FakeBackend, generate, GREEDY, promptOf, startEngine, stepByStep } from "../../testing/engine.ts";
import type { Engine } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";

/** Returns an engine that computes `steps` steps and fails in the next one. */
function engineFor(steps: number) {
  const started = startEngine();
  started.backend.gate = () =>
    steps-- > 0 ? Promise.resolve() : Promise.reject(new Error("the device was lost"));
  return started;
}

/** Returns a reloading engine. Each entry of `lives` is the number of steps of one engine; -1 is a failing load. */
function reloading(lives: number[], options: Partial<ReloadOptions> = {}) {
  const notes: string[] = [];
  const states: string[] = [];
  const backends: FakeBackend[] = [];
  const next = () => {
    const steps = lives.shift()!;
    if (steps < 0) throw new Error("the file is damaged");
    const { engine, backend } = engineFor(steps);
    backends.push(backend);
    return engine;
  };
  const engine = new ReloadingEngine(next(), {
    load: () => new Promise((resolve) => setTimeout(resolve)).then(next),
    note: (message) => notes.push(message),
    pauseMs: 0,
    ...options,
  });
  engine.onState((state) => states.push(state));
  return { engine, notes, states, backends };
}

const prompt = promptOf(5);
const ask = (engine: Engine, maxTokens = 5) =>
  generate(engine, { prompt, maxTokens, ignoreEos: true, sampling: GREEDY });

async function failureOf(promise: Promise<unknown>): Promise<string> {
  const { code, message } = await assertRejects(() => promise, EngineError);
  return `${code}: ${message}`;
}

async function became(engine: Engine, wanted: string): Promise<void> {
  for (let i = 0; i < 200 && engine.state !== wanted; i++) {
    await new Promise((resolve) => setTimeout(resolve));
  }
  assertEquals(engine.state, wanted);
}

Deno.test("ReloadingEngine: a failed engine is reloaded and answers as before", async () => {
  const { engine, notes, states, backends } = reloading([8, Infinity]);
  const before = await ask(engine);
  assertEquals(await failureOf(ask(engine)), "engine_failed: The engine has failed: the device was lost");
  assertEquals([engine.state, engine.failure], ["loading", undefined]);
  assertEquals(
    await failureOf(ask(engine)),
    "engine_unavailable: The engine has failed and is being loaded again; send the request again later",
  );
  await became(engine, "ready");
  assertEquals((await ask(engine)).tokens, before.tokens);
  assert(backends[0].closed);
  assertEquals(notes, [
    "The engine has failed: the device was lost; loading it again (1 of at most 3 times in 10 minutes)",
    "The engine is ready again",
  ]);
  assertEquals(states, ["loading", "ready"]);
  await engine.close();
  assert(backends[1].closed);
  assertEquals(states, ["loading", "ready", "draining"]);
});

Deno.test("ReloadingEngine: load receives the failure of the engine", async () => {
  const failures: unknown[] = [];
  const { engine } = reloading([3], {
    load: (_, failure) => {
      failures.push(failure);
      return Promise.resolve(startEngine().engine);
    },
  });
  await failureOf(ask(engine));
  await became(engine, "ready");
  assertEquals(failures.map((failure) => failure instanceof EngineError && failure.code), ["engine_failed"]);
  await engine.close();
});

Deno.test("ReloadingEngine: running and waiting requests of a failed engine fail once each", async () => {
  const { engine } = reloading([3, Infinity]);
  const failures = await Promise.all(Array.from({ length: 9 }, () => failureOf(ask(engine, 50))));
  assertEquals(new Set(failures), new Set(["engine_failed: The engine has failed: the device was lost"]));
  await became(engine, "ready");
  assertEquals((await ask(engine)).finish.reason, "length");
  await engine.close();
});

Deno.test("ReloadingEngine: fails for good after the maximum of reloads in a period", async () => {
  const { engine, notes, states } = reloading([0, 0, 0], { times: 2 });
  for (let i = 0; i < 2; i++) {
    await failureOf(ask(engine));
    await became(engine, "ready");
  }
  await failureOf(ask(engine));
  assertEquals(engine.state, "failed");
  assertEquals(
    engine.failure?.message,
    "The engine has failed: the device was lost; it was loaded again 2 times in 10 minutes and is not loaded again",
  );
  assertEquals(await failureOf(ask(engine)), "engine_failed: The engine has failed: the device was lost");
  assertEquals(states, ["loading", "ready", "loading", "ready", "failed"]);
  assertEquals(notes.length, 4);
  await engine.close();
});

Deno.test("ReloadingEngine: reloads before the period do not count towards the maximum", async () => {
  const { engine } = reloading([0, 0, 0, Infinity], { times: 1, withinMs: 20 });
  for (let i = 0; i < 3; i++) {
    await failureOf(ask(engine));
    await became(engine, "ready");
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  await ask(engine);
  await engine.close();
});

Deno.test("ReloadingEngine: a failing load counts, is noted and is retried after a pause", async () => {
  const { engine, notes } = reloading([0, -1, -1, Infinity], { pauseMs: 20 });
  const start = performance.now();
  await failureOf(ask(engine));
  await became(engine, "loading");
  while (engine.state === "loading") await new Promise((resolve) => setTimeout(resolve, 1));
  assertEquals(engine.state, "ready");
  assert(performance.now() - start >= 39);
  assertEquals(notes.map((note) => note.replace(/;.*\(/, " (")), [
    "The engine has failed: the device was lost (1 of at most 3 times in 10 minutes)",
    "the file is damaged (2 of at most 3 times in 10 minutes)",
    "the file is damaged (3 of at most 3 times in 10 minutes)",
    "The engine is ready again",
  ]);
  await engine.close();

  const broken = reloading([0, -1, -1, -1]);
  await failureOf(ask(broken.engine));
  await became(broken.engine, "failed");
  assertEquals(broken.engine.failure?.code, "engine_failed");
  await broken.engine.close();
});

Deno.test("ReloadingEngine: stats include the figures of earlier engines", async () => {
  const { engine } = reloading([6, Infinity]);
  await ask(engine, 5);
  await failureOf(ask(engine, 5));
  const counted = engine.stats();
  assertEquals([counted.generatedTokens, counted.promptTokens, counted.running], [6, 10, 0]);
  await became(engine, "ready");
  await ask(engine, 5);
  assertEquals(engine.stats().generatedTokens, 11);
  assertEquals([engine.stats().kvBlocksUsed, engine.stats().kvBlocksTotal > 0], [0, true]);
  await engine.close();
});

Deno.test("ReloadingEngine: stats include the preemptions of earlier engines", async () => {
  const { engine } = reloading([30, Infinity]);
  const request = { maxTokens: 10, ignoreEos: true, sampling: GREEDY, priority: "batch" } as const;
  const batch = [1, 2, 3, 4].map((seed) => generate(engine, { ...request, prompt: promptOf(5, seed) }));
  for (let i = 0; i < 50 && engine.stats().running < 4; i++) await null;
  await Promise.all([...batch, ask(engine)]);
  assertEquals(engine.stats().preemptions, 1);
  await failureOf(ask(engine, 100));
  await became(engine, "ready");
  assertEquals(engine.stats().preemptions, 1);
  await engine.close();
});

Deno.test("ReloadingEngine: does not reload an engine that drains or closes", async () => {
  for (const end of ["drain", "close"] as const) {
    const { engine, notes, states, backends } = reloading([Infinity]);
    const steps = stepByStep(backends[0]);
    const running = failureOf(ask(engine, 100));
    await steps.next();
    const ended = engine.drain(1000);
    assertEquals(engine.state, "draining");
    backends[0].gate = () => Promise.reject(new Error("the device was lost"));
    steps.release();
    assertEquals(await running, "engine_failed: The engine has failed: the device was lost");
    await ended;
    await engine[end](0);
    assertEquals([notes, states], [[], ["draining"]]);
    await engine.close();
  }
});

Deno.test("ReloadingEngine: close aborts a load", async () => {
  const heard = Promise.withResolvers<void>();
  const { engine, states } = reloading([0], {
    load: (signal) =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
        heard.resolve();
      }),
  });
  await failureOf(ask(engine));
  await heard.promise;
  await engine.close();
  assertEquals(states, ["loading", "draining"]);
});

/** Returns an engine that will be replaced by `next`. */
function replacing(options: Partial<ReloadOptions> = {}) {
  const first = startEngine();
  const next = startEngine();
  const notes: string[] = [];
  const engine = new ReloadingEngine(first.engine, {
    load: () => Promise.resolve(startEngine().engine),
    note: (message) => notes.push(message),
    patienceMs: 0,
    ...options,
  });
  return { engine, first: first.backend, next, notes };
}

Deno.test("moveTo: running requests end in the old engine, and new ones run in the next", async () => {
  const { engine, first, next } = replacing();
  const expected = await ask(engine, 20);
  const steps = stepByStep(first);
  const running = ask(engine, 20);
  await steps.next();
  await engine.moveTo(() => Promise.resolve(next.engine), true);
  assertEquals([engine.state, engine.stats().running, first.closed], ["ready", 1, false]);
  assertEquals((await ask(engine, 20)).tokens, expected.tokens);
  assertEquals(next.engine.stats().generatedTokens, 20);
  steps.release();
  assertEquals((await running).tokens, expected.tokens);
  while (!first.closed) await new Promise((resolve) => setTimeout(resolve));
  const { generatedTokens, promptTokens, running: still } = engine.stats();
  assertEquals([generatedTokens, promptTokens, still], [60, 15, 0]);
  await engine.close();
  assert(next.backend.closed);
});

Deno.test("moveTo: a request that was submitted before the move and starts after it runs in the next engine", async () => {
  const { engine, next } = replacing();
  const events = engine.submit({ prompt, maxTokens: 5, ignoreEos: true, sampling: GREEDY });
  await engine.moveTo(() => Promise.resolve(next.engine), true);
  assertEquals((await Array.fromAsync(events)).at(-1)?.type, "finish");
  assertEquals(next.engine.stats().generatedTokens, 5);
  await engine.close();
});

Deno.test("moveTo: without room for two engines, closes the old one first and holds requests", async () => {
  const { engine, first, next } = replacing();
  const steps = stepByStep(first);
  const running = ask(engine, 5);
  await steps.next();
  const loading = Promise.withResolvers<void>();
  const loaded = Promise.withResolvers<void>();
  const moved = engine.moveTo(async () => {
    assert(first.closed);
    loading.resolve();
    await loaded.promise;
    return next.engine;
  }, false);
  await new Promise((resolve) => setTimeout(resolve, 5)); // it waits until idle, then holds requests
  const held = ask(engine, 5);
  const stop = new AbortController();
  const left = ask(engine, 5).catch((error) => error);
  const cancelled = generate(engine, { prompt, maxTokens: 5, sampling: GREEDY, signal: stop.signal });
  stop.abort();
  assertEquals((await cancelled).finish.reason, "cancelled");
  steps.release();
  await running;
  await loading.promise;
  assertEquals([engine.state, engine.stats().waiting], ["ready", 2]);
  loaded.resolve();
  await moved;
  assertEquals((await held).tokens.length, 5);
  await left;
  assertEquals(next.engine.stats().generatedTokens, 10);
  assertEquals(engine.stats().generatedTokens, 15);
  await engine.close();
});

Deno.test("moveTo: when the load fails, the old engine or a reloaded one continues", async () => {
  for (const alongside of [true, false]) {
    const { engine } = replacing();
    const before = await ask(engine);
    const moved = engine.moveTo(() => Promise.reject(new Error("no memory")), alongside);
    assertEquals((await assertRejects(() => moved, Error)).message, "no memory");
    assertEquals([engine.state, (await ask(engine)).tokens], ["ready", before.tokens]);
    assertEquals(engine.stats().generatedTokens, 10);
    await engine.close();
  }
});

Deno.test("moveTo: drain ends the move and finishes the requests of both engines", async () => {
  const { engine, first, next } = replacing();
  const steps = stepByStep(first);
  const running = ask(engine, 5);
  await steps.next();
  await engine.moveTo(() => Promise.resolve(next.engine), true);
  const drained = engine.drain(1000);
  steps.release();
  assertEquals((await running).tokens.length, 5);
  await drained;
  await engine.close();
  assert(first.closed && next.backend.closed);

  const other = replacing();
  const moved = other.engine.moveTo(
    (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    true,
  );
  const ended = moved.catch(() => "ended");
  await other.engine.drain(0);
  assertEquals(await ended, "ended");
  await other.engine.close();
  assert(other.first.closed);
});

Deno.test("ReloadingEngine with a maximum of 0 reloads: never reloads, and requests get the message of the first failure", async () => {
  const { engine, notes } = reloading([0], { times: 0 });
  await failureOf(ask(engine));
  assertEquals([engine.state, engine.failure?.message, notes], [
    "failed",
    "The engine has failed: the device was lost",
    [],
  ]);
  await engine.close();
});
