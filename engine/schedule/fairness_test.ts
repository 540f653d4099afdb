import { assert, assertEquals, assertRejects } from "@std/assert";
import { generate, GREEDY, promptOf, settle, startEngine, stepByStep } from "../../testing/engine.ts";
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest } from "../api/request.ts";

/** Returns a tenant's request with a prompt of `length` tokens. */
function asked(cacheSalt: string, length: number, maxTokens: number, more: Partial<GenerateRequest> = {}) {
  return {
    prompt: promptOf(length, length),
    maxTokens,
    ignoreEos: true,
    sampling: GREEDY,
    cacheSalt,
    ...more,
  };
}

/** Returns the answer's tokens if nothing else runs. */
async function alone(request: GenerateRequest): Promise<number[]> {
  const { engine } = startEngine({ kvBlocks: 200 });
  const { tokens } = await generate(engine, request);
  await engine.close();
  return tokens;
}

/** Returns the lengths of the parts of the newest step. */
const newest = (backend: ReturnType<typeof startEngine>["backend"]) =>
  backend.steps.at(-1)!.map(({ length }) => length);

Deno.test("fairness: a tenant's request runs in the next step while another tenant holds all places", async () => {
  const { engine, backend } = startEngine({ parallel: 4, maxRows: 100 });
  const steps = stepByStep(backend);
  const flood = Array.from({ length: 20 }, (_, i) => asked("a", 10 + i, 30));
  const results = flood.map((request) => generate(engine, request));
  await settle();
  for (let i = 0; i < 5; i++) await steps.next();
  const other = generate(engine, asked("b", 40, 5));
  await settle();
  await steps.next();
  assertEquals(newest(backend), [1, 1, 1, 40]);
  steps.release();
  assertEquals((await other).tokens, await alone(asked("b", 40, 5)));
  for (const [i, { tokens }] of (await Promise.all(results)).entries()) {
    assertEquals(tokens, await alone(flood[i]), `answer ${i} is the same as alone`);
  }
  await engine.close();
});

Deno.test("fairness: a short request does not wait for the 64 answers of a request of the same tenant", async () => {
  const { engine, backend } = startEngine({ parallel: 4, maxRows: 100 });
  const steps = stepByStep(backend);
  const many = asked("", 70, 30);
  const results = Array.from({ length: 64 }, () => generate(engine, many));
  await settle();
  for (let i = 0; i < 5; i++) await steps.next();
  const short = generate(engine, asked("", 5, 2));
  await settle();
  await steps.next();
  assertEquals(newest(backend), [1, 1, 1, 5]);
  steps.release();
  await short;
  const wanted = await alone(many);
  for (const { tokens } of await Promise.all(results)) assertEquals(tokens, wanted);
  await engine.close();
});

Deno.test("fairness: with a single place, long answers of two tenants alternate, and all end", async () => {
  const { engine, backend } = startEngine({ parallel: 1, maxRows: 1000, kvBlocks: 200 });
  const results = ["a", "a", "b"].map((salt, i) => generate(engine, asked(salt, 10 + i, 1500)));
  const short = generate(engine, asked("c", 20, 5));
  const { tokens } = await short;
  assertEquals(tokens, await alone(asked("c", 20, 5)));
  const after = backend.steps.length;
  assert(after < 700, `the short answer ended after ${after} steps`);
  const answers = await Promise.all(results);
  for (const [i, { tokens }] of answers.entries()) {
    assertEquals(tokens, await alone(asked("a", 10 + i, 1500)));
  }
  assert(engine.stats().preemptions < 30);
  await engine.close();
});

Deno.test("fairness: prompts of the tenant that was served least come first", async () => {
  const { engine, backend } = startEngine({ parallel: 8, maxRows: 16 });
  const steps = stepByStep(backend);
  const results = [generate(engine, asked("a", 200, 3))];
  await settle();
  results.push(generate(engine, asked("b", 12, 3)));
  await steps.next();
  assertEquals(newest(backend), [12, 4]);
  steps.release();
  await Promise.all(results);
  await engine.close();
});

Deno.test("fairness: a tenant of weight 3 gets three times the tokens of one of weight 1", async () => {
  const { engine, backend } = startEngine({ parallel: 4, maxRows: 200 });
  const counts = { heavy: 0, light: 0 };
  const steps = stepByStep(backend);
  const run = async (salt: "heavy" | "light", weight: number) => {
    for (let i = 0; i < 40; i++) {
      await generate(engine, asked(salt, 10, 20, { weight })).then(() => counts[salt]++);
    }
  };
  const runs = Array.from({ length: 9 }).flatMap(() => [run("heavy", 3), run("light", 1)]);
  await settle();
  for (let i = 0; i < 600; i++) await steps.next();
  const ratio = counts.heavy / counts.light;
  assert(ratio > 2.2 && ratio < 3.8, `${counts.heavy} and ${counts.light} answers`);
  steps.release();
  await Promise.all(runs);
  await engine.close();
});

Deno.test("fairness: a tenant that pauses gains no advantage", async () => {
  const { engine, backend } = startEngine({ parallel: 2, maxRows: 100 });
  await generate(engine, asked("b", 20, 2));
  const steps = stepByStep(backend);
  const flood = Array.from({ length: 6 }, (_, i) => generate(engine, asked("a", 10 + i, 60)));
  await settle();
  for (let i = 0; i < 50; i++) await steps.next();
  const back = Array.from({ length: 6 }, (_, i) => generate(engine, asked("b", 30 + i, 60)));
  await settle();
  for (let i = 0; i < 40; i++) await steps.next();
  const ofB = backend.steps.slice(-30).map((step) =>
    step.filter(({ cached }) => cached >= 30 && cached < 80).length
  );
  assert(ofB.every((count) => count <= 2));
  assert(backend.steps.slice(-30).every((step) => step.length === 2), "both tenants run");
  steps.release();
  await Promise.all([...flood, ...back]);
  await engine.close();
});

Deno.test("fairness: a tenant that fills the queue does not keep others out of it", async () => {
  const { engine, backend } = startEngine({ parallel: 1, queue: 4 });
  const steps = stepByStep(backend);
  const flood = Array.from({ length: 5 }, (_, i) => generate(engine, asked("a", 10 + i, 5)));
  await settle();
  await assertRejects(() => generate(engine, asked("a", 30, 5)), EngineError, "The queue is full");
  const others = [generate(engine, asked("b", 31, 5)), generate(engine, asked("b", 32, 5))];
  await settle();
  await assertRejects(() => generate(engine, asked("b", 33, 5)), EngineError, "The queue is full");
  steps.release();
  await Promise.all([...flood, ...others]);
  await engine.close();
});

Deno.test("fairness: a tenant that runs requests and lacks memory delays only its own requests", async () => {
  const { engine, backend } = startEngine({ parallel: 8, kvBlocks: 12, maxRows: 400 });
  const steps = stepByStep(backend);
  const small = generate(engine, asked("a", 20, 40));
  await settle();
  const large = generate(engine, asked("a", 370, 5));
  const other = generate(engine, asked("b", 20, 3));
  await settle();
  await steps.next();
  assertEquals(newest(backend), [1, 20]);
  steps.release();
  await Promise.all([small, large, other]);
  await engine.close();
});

Deno.test("fairness: if memory is short, a tenant does not wait until another tenant's long answers end", async () => {
  const { engine, backend } = startEngine({ parallel: 4, kvBlocks: 50, maxRows: 1000 });
  const long = Array.from({ length: 3 }, (_, i) => asked("a", 200 + i, 400));
  const results = long.map((request) => generate(engine, request));
  const other = asked("b", 800, 100);
  const { tokens } = await generate(engine, other);
  const steps = backend.steps.length;
  assert(steps < 350, `the other tenant's answer ended after ${steps} steps`);
  assertEquals(tokens, await alone(other));
  for (const [i, { tokens }] of (await Promise.all(results)).entries()) {
    assertEquals(tokens, await alone(long[i]));
  }
  const prefills = backend.steps.flat().filter(({ length }) => length > 400).length;
  assertEquals(prefills, 1, "the long prompt is computed once");
  await engine.close();
});

Deno.test("fairness: a long prompt does not give way just after it was computed", async () => {
  const { engine, backend } = startEngine({ parallel: 1, kvBlocks: 200, maxRows: 1000 });
  const steps = stepByStep(backend);
  const long = generate(engine, asked("a", 900, 120));
  await settle();
  const other = generate(engine, asked("b", 20, 100));
  await settle();
  steps.release();
  await Promise.all([long, other]);
  assertEquals(engine.stats().preemptions, 0);
  assertEquals(backend.steps.flat().filter(({ length }) => length > 800).length, 1);
  await engine.close();
});
