import { assertEquals } from "@std/assert";
import type { StepInput } from "../../engine/backend/backend.ts";
import { ReloadingEngine } from "../../engine/loop/reloading.ts";
import { FakeBackend, startEngine } from "../../testing/engine.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { runBatch } from "../../jobs/run/runner.ts";
import { whenReady } from "../../jobs/run/when_ready.ts";
import { execute } from "../../routes/execute.ts";
import { seeded, SimStorage } from "./sim_storage.ts";

/* Lines that make the engine fail, through the real runner, API and engine loop; only the backend is simulated. */

const POISON = "\u0007";
const LINES = 60;

/** Fails if a step contains the poison token. */
class PoisonedBackend extends FakeBackend {
  override step(input: StepInput) {
    if (input.tokens.includes(POISON.charCodeAt(0))) return Promise.reject(new Error("a kernel failed"));
    return super.step(input);
  }
}

function lineOf(n: number, poisoned: readonly number[]): string {
  const prompt = `line ${n}${poisoned.includes(n) ? POISON : ""}`;
  const body = { model: "m", prompt, max_tokens: 5 + n % 20, temperature: 0 };
  return JSON.stringify({ custom_id: `q${n}`, method: "POST", url: "/v1/completions", body });
}

/** Ids of the answers and of the errors, and the number of reloads. */
async function run(poisoned: readonly number[]) {
  const storage = new SimStorage(seeded(1));
  storage.put("in.jsonl", Array.from({ length: LINES }, (_, n) => lineOf(n, poisoned)).join("\n"));
  let loads = 0;
  const start = () => startEngine({ parallel: 8 }, 1024, PoisonedBackend).engine;
  const engine = new ReloadingEngine(start(), {
    load: () => new Promise((resolve) => setTimeout(() => resolve(start()), 5)),
    note: (text) => loads += text.includes("loading it again") ? 1 : 0,
    pauseMs: 0,
    times: 3 * poisoned.length,
  });
  await runBatch({
    input: "in.jsonl",
    output: "out.jsonl",
    errors: "err.jsonl",
    parallel: 12,
    limits: TEST_LIMITS,
    storage,
    connect: () =>
      Promise.resolve({
        execute: whenReady(engine, (request) => execute(engine, request)),
        settings: { model: "m" },
      }),
  });
  await engine.close();
  const ids = (path: string) =>
    (storage.content(path) ?? "").split("\n").filter((text) => text !== "").map((text) =>
      JSON.parse(text).custom_id
    );
  return { answers: ids("out.jsonl"), errors: ids("err.jsonl"), loads };
}

const others = (poisoned: readonly number[]) =>
  Array.from({ length: LINES }, (_, n) => n).filter((n) => !poisoned.includes(n)).map((n) => `q${n}`);

for (const poisoned of [[0], [30], [59], [10, 40], [20, 21, 22], [57, 58, 59]]) {
  Deno.test(`batch: lines that make the engine fail (${poisoned}) do not fail other lines`, async () => {
    const { answers, errors, loads } = await run(poisoned);
    assertEquals(answers, others(poisoned));
    assertEquals(errors, poisoned.map((n) => `q${n}`));
    assertEquals(loads <= 3 * poisoned.length, true, `${loads} loads`);
  });
}
