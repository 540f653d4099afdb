import { assert, assertEquals, assertThrows } from "@std/assert";
import { Scheduler } from "./scheduler.ts";
import {
  expectedTokens,
  generate,
  GREEDY,
  promptOf,
  settle,
  startEngine,
  stepByStep,
} from "../../testing/engine.ts";

/** Returns a request whose sequence is identified by its prompt's length. */
function asked(length: number, maxTokens: number, priority: "interactive" | "batch" = "interactive") {
  return {
    prompt: promptOf(length, length),
    maxTokens,
    ignoreEos: true,
    sampling: GREEDY,
    priority,
  } as const;
}

/** Returns the rows of each part of a step. */
function rowsOf(step: { cached: number; length: number }[]): number[] {
  return step.map(({ length }) => length);
}

Deno.test("scheduler: a step takes decodes first, then chunks of prompts in order of arrival", async () => {
  const { engine, backend } = startEngine({ maxRows: 32, parallel: 4 });
  const steps = stepByStep(backend);
  const results = [generate(engine, asked(10, 20)), generate(engine, asked(15, 20))];
  await settle();
  assertEquals(rowsOf(backend.steps.at(-1)!), [10, 15]);
  results.push(generate(engine, asked(50, 20)), generate(engine, asked(20, 20)));
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 1, 30]);
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 1, 20, 10]);
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 1, 1, 10]);
  steps.release();
  await Promise.all(results);
  await engine.close();
});

Deno.test("scheduler: a step has at most the backend's row limit, but one row per decoding sequence", async () => {
  const { engine, backend } = startEngine({ maxRows: 64, parallel: 4 });
  const steps = stepByStep(backend);
  backend.stepRows = 2;
  const results = [generate(engine, asked(9, 20))];
  await settle();
  assertEquals(rowsOf(backend.steps.at(-1)!), [2]);
  backend.stepRows = 16;
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [7]);
  results.push(generate(engine, asked(10, 20)), generate(engine, asked(11, 20)));
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 10, 5]);
  await steps.next();
  backend.stepRows = 2;
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 1, 1]);
  backend.stepRows = undefined;
  steps.release();
  await Promise.all(results);
  await engine.close();
});

Deno.test("scheduler: an interactive request gets rows before running batch requests", async () => {
  const { engine, backend } = startEngine({ maxRows: 16, parallel: 8 });
  const steps = stepByStep(backend);
  const results = [generate(engine, asked(6, 9, "batch")), generate(engine, asked(40, 9, "batch"))];
  await settle();
  assertEquals(rowsOf(backend.steps.at(-1)!), [6, 10]);
  results.push(generate(engine, asked(30, 9)));
  await steps.next();
  assertEquals(backend.steps.at(-1), [{ cached: 0, length: 16 }]);
  await steps.next();
  assertEquals(backend.steps.at(-1), [{ cached: 16, length: 14 }, { cached: 6, length: 1 }, {
    cached: 10,
    length: 1,
  }]);
  steps.release();
  await Promise.all(results);
  await engine.close();
});

Deno.test("scheduler: an interactive request preempts the latest batch one without changing its text", async () => {
  const { engine, backend } = startEngine({ parallel: 2, maxRows: 100 });
  const steps = stepByStep(backend);
  const sampling = { seed: 3, frequencyPenalty: 0.5, presencePenalty: 0.2, repetitionPenalty: 1.1 };
  const batch = [70, 80].map((length) => ({ ...asked(length, 40, "batch"), sampling }));
  const wanted = await (async () => {
    const other = startEngine();
    const results = [await generate(other.engine, batch[0]), await generate(other.engine, batch[1])];
    await other.engine.close();
    return results.map(({ tokens }) => tokens);
  })();
  const results = batch.map((request) => generate(engine, request));
  await settle();
  for (let i = 0; i < 10; i++) await steps.next();
  const interactive = generate(engine, asked(20, 5));
  await settle();
  await steps.next();
  assertEquals(backend.steps.at(-1)!.map(({ length }) => length), [20, 1]);
  assertEquals([engine.stats().running, engine.stats().waiting], [2, 1]);
  steps.release();
  assertEquals((await interactive).tokens.length, 5);
  assertEquals((await Promise.all(results)).map(({ tokens }) => tokens), wanted);
  const usages = (await Promise.all(results)).map(({ finish }) => finish.usage);
  assertEquals(usages.map(({ cachedTokens }) => cachedTokens), [0, 0]);
  // The preempted request found its full blocks again.
  assert(backend.steps.flat().some(({ cached, length }) => cached === 64 && length > 1 && length < 40));
  await engine.close();
});

Deno.test("scheduler: a batch request is preempted for memory, but not by another batch request", async () => {
  const { engine, backend } = startEngine({ parallel: 8, kvBlocks: 10 });
  const steps = stepByStep(backend);
  const first = generate(engine, asked(100, 92, "batch")); // 4 blocks, 6 in the end
  await settle();
  await steps.next();
  const second = generate(engine, asked(90, 70, "batch")); // 3 blocks, 5 in the end
  await settle();
  await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting, engine.stats().kvBlocksUsed], [1, 1, 4]);
  const interactive = generate(engine, asked(150, 50)); // 5 blocks, 7 in the end
  await settle();
  await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting, engine.stats().kvBlocksUsed], [1, 2, 5]);
  steps.release();
  assertEquals((await interactive).tokens.length, 50);
  assertEquals((await first).tokens.length, 92);
  assertEquals((await second).tokens.length, 70);
  await engine.close();
});

Deno.test("scheduler: admits requests in order, so a small one does not pass a large one", async () => {
  const { engine, backend } = startEngine({ parallel: 8, kvBlocks: 10 });
  const steps = stepByStep(backend);
  const ended: string[] = [];
  const ask = async (name: string, length: number, maxTokens: number) => {
    await generate(engine, asked(length, maxTokens));
    ended.push(name);
  };
  const results = [ask("running", 30, 130), ask("large", 220, 50), ask("small", 5, 5)];
  await settle();
  await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting], [1, 2]);
  steps.release();
  await Promise.all(results);
  assertEquals(ended, ["running", "small", "large"]);
  await engine.close();
});

Deno.test("scheduler: a request waits only while another request computes their common prefix", async () => {
  const { engine, backend } = startEngine({ maxRows: 32, parallel: 8 });
  const steps = stepByStep(backend);
  const prefix = promptOf(64, 1);
  const ask = (rest: number[], priority?: "batch") =>
    generate(engine, {
      prompt: [...prefix, ...rest],
      maxTokens: 2,
      ignoreEos: true,
      sampling: GREEDY,
      priority,
    });
  const first = ask(promptOf(200, 2));
  const second = ask(promptOf(10, 3));
  const other = generate(engine, asked(12, 2));
  await settle();
  assertEquals([engine.stats().running, engine.stats().waiting], [2, 1]);
  await steps.next();
  assertEquals(backend.steps.at(-1), [{ cached: 32, length: 32 }]);
  assertEquals([engine.stats().running, engine.stats().waiting], [2, 1]);
  await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting], [3, 0]);
  steps.release();
  assertEquals((await second).finish.usage.cachedTokens, 64);
  assertEquals((await second).tokens, expectedTokens([...prefix, ...promptOf(10, 3)], 2));
  assertEquals((await first).finish.usage.cachedTokens, 0);
  await other;
  await engine.close();
});

Deno.test("scheduler: an interactive request does not wait for a batch request's prefix", async () => {
  const { engine, backend } = startEngine({ maxRows: 32, parallel: 8 });
  const steps = stepByStep(backend);
  const batch = generate(engine, asked(100, 2, "batch"));
  await settle();
  const interactive = generate(engine, asked(100, 2));
  await steps.next();
  assertEquals(engine.stats().waiting, 0);
  steps.release();
  assertEquals((await interactive).tokens, (await batch).tokens);
  await engine.close();
});

Deno.test("scheduler: the next request computes a prefix when the first is cancelled", async () => {
  const { engine, backend } = startEngine({ maxRows: 32, parallel: 8 });
  const steps = stepByStep(backend);
  const abort = new AbortController();
  const first = generate(engine, { ...asked(200, 2), signal: abort.signal });
  const second = generate(engine, asked(200, 2));
  await settle();
  await steps.next();
  assertEquals([engine.stats().running, engine.stats().waiting], [1, 1]);
  abort.abort();
  await settle();
  assertEquals([engine.stats().running, engine.stats().waiting], [1, 0]);
  steps.release();
  assertEquals((await first).finish.reason, "cancelled");
  assertEquals((await second).finish.usage.cachedTokens, 32);
  await engine.close();
});

Deno.test("scheduler: refuses invalid limits", () => {
  const limits = { parallel: 1, kvBlocks: 1, maxRows: 1, maxLogitRows: 1, queue: 0 };
  new Scheduler(limits);
  assertThrows(
    () => new Scheduler({ ...limits, maxRows: 0 }),
    RangeError,
    "Invalid engine limit maxRows: must be a whole number, 1 or more (got 0)",
  );
  assertThrows(() => new Scheduler({ ...limits, queue: NaN }), RangeError, "Invalid engine limit queue");
});
