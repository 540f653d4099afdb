import { assertEquals, assertRejects } from "@std/assert";
import { EngineError } from "../api/errors.ts";
import { fakeGreedy, generate, GREEDY, promptOf, startEngine, stepByStep } from "../../testing/engine.ts";
import { NodeEngines } from "./node_engines.ts";

const PLACES = 2;

function twoNodes() {
  const nodes = [startEngine({ parallel: PLACES }), startEngine({ parallel: PLACES })];
  return { nodes, engine: new NodeEngines(nodes.map(({ engine }) => engine)) };
}

const ask = (engine: NodeEngines, prompt: number[], maxTokens = 5) =>
  generate(engine, { prompt, maxTokens, ignoreEos: true, sampling: GREEDY });

Deno.test("NodeEngines: concurrent requests use both engines, and their answers do not depend on it", async () => {
  const { engine, nodes } = twoNodes();
  const prompts = [1, 2, 3, 4].map((seed) => promptOf(40, seed));
  const answers = await Promise.all(prompts.map((prompt) => ask(engine, prompt)));
  for (const [i, { tokens }] of answers.entries()) assertEquals(tokens[0], fakeGreedy(prompts[i], 1)[0]);
  assertEquals(nodes.map(({ engine }) => engine.stats().promptTokens), [80, 80]);
  const { promptTokens, generatedTokens, running, waiting } = engine.stats();
  assertEquals({ promptTokens, generatedTokens, running, waiting }, {
    promptTokens: 160,
    generatedTokens: 20,
    running: 0,
    waiting: 0,
  });
  assertEquals(engine.slots(), [undefined, undefined, undefined, undefined]);
  await engine.close();
});

Deno.test("NodeEngines: sends a prompt to the engine that cached its prefix, unless that engine is full", async () => {
  const { engine, nodes } = twoNodes();
  const shared = promptOf(300, 1);
  await ask(engine, [...shared, 1]);
  await ask(engine, [...shared, 2]);
  assertEquals(nodes.map(({ engine }) => engine.stats().cachedTokens > 0), [true, false]);
  const steps = stepByStep(nodes[0].backend);
  const running = [3, 4].map((last) => ask(engine, [...shared, last]));
  await ask(engine, [...shared, 5]);
  assertEquals(nodes[1].engine.stats().generatedTokens, 5);
  steps.release();
  await Promise.all(running);
  await engine.close();
});

Deno.test("NodeEngines: requests with one prefix use both engines when both are full", async () => {
  const { engine, nodes } = twoNodes();
  const shared = promptOf(300, 1);
  await Promise.all(Array.from({ length: 12 }, (_, i) => ask(engine, [...shared, i])));
  const answered = nodes.map(({ engine }) => engine.stats().generatedTokens / 5);
  assertEquals(answered[0] + answered[1], 12);
  assertEquals(Math.abs(answered[0] - answered[1]) <= 2, true, `${answered}`);
  await engine.close();
});

Deno.test("NodeEngines: an abandoned request frees its place", async () => {
  const { engine, nodes } = twoNodes();
  for (let i = 0; i < 4; i++) {
    for await (const _ of engine.submit({ prompt: promptOf(20, i), maxTokens: 50, sampling: GREEDY })) break;
  }
  await Promise.all([1, 2, 3, 4].map((seed) => ask(engine, promptOf(40, seed))));
  assertEquals(nodes.map(({ engine }) => engine.stats().running), [0, 0]);
  await engine.close();
});

Deno.test("NodeEngines: fails with an engine's error if that engine fails", async () => {
  const { engine, nodes } = twoNodes();
  const states: string[] = [];
  engine.onState((state) => states.push(state));
  nodes[0].backend.gate = () => Promise.reject(new Error("no memory"));
  const steps = stepByStep(nodes[1].backend);
  const requests = [ask(engine, promptOf(20, 1)), ask(engine, promptOf(20, 2))];
  await assertRejects(() => requests[0], EngineError, "no memory");
  const closed = engine.close();
  steps.release();
  await assertRejects(() => requests[1], EngineError, "no memory");
  await closed;
  assertEquals(states, ["failed", "draining"]);
});
