import { assertEquals } from "@std/assert";
import {
  expectedTokens,
  generate,
  GREEDY,
  promptOf,
  quiet,
  startEngine,
  stepByStep,
} from "../../testing/engine.ts";
import type { LlmEngine } from "../loop/engine.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { RecurrentStates } from "./recurrent_state.ts";

/*
 * With recurrent layers, a prefix is shared only up to a snapshot of the state. The fake backend refuses a state that
 * does not belong to the preceding tokens, so each answer here also verifies the slots.
 */

const LIMITS = { parallel: 4, kvBlocks: 64, stateSlots: 8 };

/** Returns the number of prompt tokens that were found computed. */
async function reused(engine: LlmEngine, prompt: number[], maxTokens = 4): Promise<number> {
  const before = engine.stats().cachedTokens;
  const { tokens } = await generate(engine, { prompt, maxTokens, sampling: GREEDY });
  assertEquals(tokens, expectedTokens(prompt, maxTokens));
  return engine.stats().cachedTokens - before;
}

Deno.test("states: a prompt continues from the last block edge of an earlier prompt that it extends", async () => {
  const { engine } = startEngine(LIMITS);
  const prompt = promptOf(100);
  assertEquals(await reused(engine, prompt), 0);
  assertEquals(await reused(engine, prompt), 96);
  assertEquals(await reused(engine, [...prompt, ...promptOf(50, 1)]), 96);
  await engine.close();
});

Deno.test("states: a third prompt continues where two earlier prompts diverged", async () => {
  const { engine } = startEngine(LIMITS);
  const begin = promptOf(70);
  const prompt = (seed: number) => [...begin, ...promptOf(60, seed)];
  assertEquals(await reused(engine, prompt(1)), 0);
  assertEquals(await reused(engine, prompt(2)), 0); // its blocks are in the cache, but not the state at their edge
  assertEquals(await reused(engine, prompt(3)), 64);
  await engine.close();
});

Deno.test("states: concurrent prompts wait for the state at the token where the prompts diverge", async () => {
  const { engine, backend } = startEngine(LIMITS);
  const begin = promptOf(128);
  const prompts = [1, 2, 3].map((seed) => [...begin, ...promptOf(20, seed)]);
  const found = await Promise.all(
    prompts.map((prompt) => generate(engine, { prompt, maxTokens: 4, sampling: GREEDY })),
  );
  prompts.forEach((prompt, i) => assertEquals(found[i].tokens, expectedTokens(prompt, 4)));
  assertEquals(engine.stats().cachedTokens, 2 * 128);
  assertEquals(backend.rows <= 128 + 3 * (20 + 4), true);
  await engine.close();
});

Deno.test("states: the least recently used snapshot is evicted", async () => {
  const { engine } = startEngine({ ...LIMITS, stateSlots: 6 }); // two snapshots
  const [a, b, c] = [0, 1, 2].map((seed) => promptOf(40, seed));
  for (const prompt of [a, b]) await reused(engine, prompt);
  assertEquals(await reused(engine, a), 32);
  await reused(engine, c);
  assertEquals([await reused(engine, a), await reused(engine, b)], [32, 0]);
  await engine.close();
});

Deno.test("states: a snapshot is evicted with its KV block", async () => {
  const { engine } = startEngine({ ...LIMITS, kvBlocks: 4 }, 128);
  const prompt = promptOf(40);
  await reused(engine, prompt);
  assertEquals(await reused(engine, prompt), 32);
  await reused(engine, promptOf(100, 1), 20); // takes all four blocks
  assertEquals(await reused(engine, prompt), 0);
  await engine.close();
});

Deno.test("states: a request cancelled during prefill keeps its snapshots and frees its slot", async () => {
  const { engine, backend } = startEngine({ ...LIMITS, parallel: 1, stateSlots: 2, maxRows: 40 });
  const steps = stepByStep(backend);
  const [first, second] = [promptOf(90), promptOf(90, 1)];
  const abort = new AbortController();
  const cut = generate(engine, { prompt: first, maxTokens: 4, sampling: GREEDY, signal: abort.signal });
  await steps.next();
  await steps.next();
  abort.abort();
  assertEquals((await cut).finish.reason, "cancelled");
  steps.release();
  for (const prompt of [second, first, first]) await reused(engine, prompt);
  assertEquals(engine.stats().cachedTokens, 64);
  await quiet(engine);
  assertEquals(engine.stats().running, 0);
  await engine.close();
});

Deno.test("states: a preempted batch request resumes from its prompt's snapshot", async () => {
  const { engine, backend } = startEngine({ ...LIMITS, parallel: 1, stateSlots: 3 });
  const steps = stepByStep(backend);
  const [long, short] = [promptOf(40), promptOf(40, 1)];
  const batch = generate(engine, { prompt: long, maxTokens: 20, sampling: GREEDY, priority: "batch" });
  for (let i = 0; i < 5; i++) await steps.next();
  const interactive = generate(engine, { prompt: short, maxTokens: 4, sampling: GREEDY });
  steps.release();
  assertEquals((await interactive).tokens, expectedTokens(short, 4));
  assertEquals((await batch).tokens, expectedTokens(long, 20));
  // Only the two prompts started from nothing; the readmitted batch request continued.
  const beginnings = backend.steps.flat().filter(({ cached }) => cached === 0).length;
  assertEquals(beginnings, 2);
  await engine.close();
});

Deno.test("states: the next turn of a chat continues from the last block edge of the answer", async () => {
  const { engine } = startEngine(LIMITS);
  const prompt = promptOf(40);
  const { tokens } = await generate(engine, { prompt, maxTokens: 150, ignoreEos: true, sampling: GREEDY });
  assertEquals(await reused(engine, [...prompt, ...tokens, ...promptOf(20, 1)]), 160);
  // A prompt that diverges before the answer's end continues from the prompt's edge.
  assertEquals(await reused(engine, [...prompt, ...tokens.slice(0, 70), ...promptOf(20, 2)]), 32);
  await engine.close();
});

Deno.test("states: an answer displaces at most one snapshot, and no snapshot when only one exists", async () => {
  for (const [snapshots, found] of [[1, [0, 32]], [2, [0, 32]], [3, [32, 32]]] as const) {
    const { engine } = startEngine({ ...LIMITS, stateSlots: LIMITS.parallel + snapshots });
    const [a, b] = [promptOf(40), promptOf(40, 1)];
    await reused(engine, a);
    await generate(engine, { prompt: b, maxTokens: 300, ignoreEos: true, sampling: GREEDY });
    // The second prompt is asked first, because computing the first one again evicts a snapshot.
    const second = await reused(engine, b);
    assertEquals([await reused(engine, a), second], [...found], `${snapshots} snapshots`);
    await engine.close();
  }
});

/** Returns a running sequence with `cached` computed tokens. */
const runningOf = (states: RecurrentStates, cached: number): Sequence => {
  const sequence = {
    kv: { cached, blocks: [], indexed: 0 },
    promptLength: 1,
    length: cached + 1,
    admission: {},
    disk: {},
  } as unknown as Sequence;
  states.start(sequence, [], 0);
  return sequence;
};

Deno.test("states: a sequence continues from the state after its last right draft", () => {
  for (const right of [0, 1, 2, 3]) {
    const states = new RecurrentStates(10, 2, 4);
    const sequence = runningOf(states, 10);
    const { read, write, saves } = states.draft(sequence, 2, 3);
    const after = [...saves.map(({ slot }) => slot), write];
    assertEquals(saves.map(({ after }) => after), [2, 3, 4]);
    assertEquals(new Set([read, ...after]).size, 5);
    assertEquals(states.drafted(sequence, right, 3), right);
    assertEquals(states.step(sequence, 1).read, after[right]);
  }
});

Deno.test("states: a sequence computes right drafts again if their states had no slot", () => {
  const states = new RecurrentStates(10, 2, 4);
  const [sequence] = [runningOf(states, 10), runningOf(states, 10)]; // each sequence has two draft slots
  const drafted = (right: number) => {
    states.draft(sequence, 1, 5);
    return states.drafted(sequence, right, 5);
  };
  assertEquals([0, 1, 4, 5].map(drafted), [0, 0, 0, 5]);
});

Deno.test("states: a sequence with one slot computes its own rows again after a wrong draft", () => {
  const states = new RecurrentStates(6, 2, 1);
  const sequence = runningOf(states, 10);
  const own = states.step(sequence, 1).write;
  assertEquals(states.draft(sequence, 1, 3).saves, []);
  assertEquals(states.drafted(sequence, 2, 3), undefined);
  assertEquals(states.step(sequence, 1).read, own);
});
