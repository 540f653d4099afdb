import { assert, assertEquals } from "@std/assert";
import { everyNth } from "../../testing/tier.ts";
import { expectedTokens, generate, GREEDY, promptOf, settle, startEngine } from "../../testing/engine.ts";
import type { LlmEngine } from "./engine.ts";

/** Returns a generator of whole numbers below a limit, the same for each seed. */
function dice(seed: number): (below: number) => number {
  return (below) => (seed = (seed * 48271) % 0x7fffffff) % below;
}

const SHARED = promptOf(100, 99);

/** Submits a request with random length, prefix, priority and cancellation. The answer must have the model's tokens. */
async function one(engine: LlmEngine, id: number, roll: (below: number) => number): Promise<void> {
  for (let wait = roll(20); wait > 0; wait--) await settle();
  const prompt = [...SHARED.slice(0, roll(101)), ...promptOf(1 + roll(40), id)];
  const maxTokens = roll(50);
  const abort = new AbortController();
  const leaveAfter = roll(3) === 0 ? roll(30) : Infinity;
  const leaveBySignal = roll(2) === 0;
  const priority = roll(2) === 0 ? "batch" : "interactive";
  const tokens: number[] = [];
  let cut = false;
  const request = { prompt, maxTokens, sampling: GREEDY, priority, signal: abort.signal } as const;
  for await (const event of engine.submit(request)) {
    if (event.type === "token") tokens.push(event.token);
    if (event.type === "finish") cut ||= event.reason === "cancelled";
    if (tokens.length < leaveAfter || cut) continue;
    cut = true;
    if (!leaveBySignal) break;
    abort.abort();
  }
  const wanted = expectedTokens(prompt, maxTokens);
  assertEquals(tokens, cut ? wanted.slice(0, tokens.length) : wanted, `request ${id}`);
}

for (
  const [name, limits] of everyNth(
    3,
    Object.entries({
      "with room for all": { parallel: 16, kvBlocks: 200, maxRows: 128, maxLogitRows: 16 },
      "with little memory": { parallel: 8, kvBlocks: 14, maxRows: 40, maxLogitRows: 8 },
      "with few rows": { parallel: 6, kvBlocks: 60, maxRows: 5, maxLogitRows: 2 },
      "one at a time": { parallel: 1, kvBlocks: 7, maxRows: 16, maxLogitRows: 1 },
      "with recurrent states": {
        parallel: 16,
        kvBlocks: 200,
        maxRows: 128,
        maxLogitRows: 16,
        stateSlots: 40,
      },
      "with recurrent states and one snapshot": {
        parallel: 8,
        kvBlocks: 15,
        maxRows: 40,
        maxLogitRows: 8,
        stateSlots: 9,
      },
      "with windows": { parallel: 16, kvBlocks: 300, maxRows: 128, maxLogitRows: 16, kvWindows: [40, 0, 3] },
      "with windows and little memory": {
        parallel: 8,
        kvBlocks: 40,
        maxRows: 40,
        maxLogitRows: 8,
        kvWindows: [33, 3],
      },
      "with windows, recurrent states and little memory": {
        parallel: 8,
        kvBlocks: 40,
        maxRows: 40,
        maxLogitRows: 8,
        kvWindows: [33, 64],
        stateSlots: 12,
      },
    }),
  )
) {
  Deno.test(`engine ${name}: many random requests get correct answers and leave nothing behind`, async () => {
    const { engine } = startEngine({ ...limits, queue: 1000 });
    const roll = dice(limits.kvBlocks);
    let next = 0;
    const worker = async () => {
      while (next < 600) await one(engine, next++, roll);
    };
    await Promise.all(Array.from({ length: 16 }, worker));
    await settle();
    const { running, waiting, kvBlocksUsed } = engine.stats();
    assertEquals({ running, waiting, kvBlocksUsed }, { running: 0, waiting: 0, kvBlocksUsed: 0 });
    assert(engine.stats().cachedTokens > 0);
    await engine.close();
  });
}

Deno.test("engine: each tenant's constraints are compiled in that tenant's turn, for checks and for requests", async () => {
  const { engine, grammars } = startEngine();
  const constraint = { kind: "choice", choices: ["a"] } as const;
  const sender = { cacheSalt: "tenant", priority: "batch" } as const;
  await engine.checkConstraint(constraint, sender);
  await generate(engine, { prompt: promptOf(3), constraint, ...sender });
  await engine.checkConstraint(constraint);
  const asker = { tenant: "tenant", batch: true };
  assertEquals(grammars.askers, [asker, asker, { tenant: "", batch: false }]);
  await engine.close();
});
