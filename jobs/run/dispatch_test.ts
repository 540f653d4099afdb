import { assert, assertEquals, assertRejects } from "@std/assert";
import { seeded, SimStorage } from "../../tests/batch/sim_storage.ts";
import { BatchError } from "../errors.ts";
import type { Execute } from "./runner.ts";
import { batchLine, runOn } from "../testing.ts";

type Answer = Awaited<ReturnType<Execute>>;

function disk(count: number): SimStorage {
  const storage = new SimStorage(seeded(1));
  storage.put("in.jsonl", Array.from({ length: count }, (_, n) => batchLine(n)).join("\n"));
  return storage;
}

function ids(storage: SimStorage, path: string): number[] {
  return (storage.content(path) ?? "").split("\n").filter((text) => text !== "")
    .map((text) => Number(JSON.parse(text).custom_id.slice(3))).toSorted((a, b) => a - b);
}

/** A fake engine. `answer` receives undefined for probes, which test whether an engine works. */
function answering(
  answer: (n: number | undefined) => Answer,
): { execute: Execute; asked: Map<unknown, number> } {
  const asked = new Map<unknown, number>();
  const execute: Execute = async ({ body }) => {
    const n = body.max_tokens === 1 ? undefined : body.n as number;
    asked.set(n, (asked.get(n) ?? 0) + 1);
    await Promise.resolve();
    return answer(n);
  };
  return { execute, asked };
}

const GOOD: Answer = { status: 200, body: {} };
const REFUSED: Answer = { status: 400, body: {} };
const BROKEN: Answer = { status: 500, body: {} };

Deno.test("dispatch: a broken engine turns no line into an error, although it still refuses some", async () => {
  const storage = disk(100);
  let count = 0;
  // A refused request is never computed, so a refusal does not show whether the engine works.
  const { execute } = answering((n) =>
    ++count <= 20 ? GOOD : n !== undefined && n % 3 === 0 ? REFUSED : BROKEN
  );
  const error = await assertRejects(() => runOn(storage, execute), BatchError, "does not answer");
  assertEquals([error.code, error.resumable], ["engine_unavailable", true]);
  const { counts } = await runOn(storage, answering((n) => n! % 3 === 0 ? REFUSED : GOOD).execute);
  const refused = Array.from({ length: 100 }, (_, n) => n).filter((n) => n % 3 === 0);
  const errors = ids(storage, "err.jsonl");
  assert(errors.every((n) => refused.includes(n)), `${errors}`);
  assertEquals(counts.completed + counts.failed, 100);
});

Deno.test("dispatch: an engine that breaks at the last lines turns none of them into errors", async () => {
  const storage = disk(10);
  const broken = answering((n) => n !== undefined && n < 7 ? GOOD : BROKEN);
  await assertRejects(() => runOn(storage, broken.execute), BatchError, "does not answer");
  assertEquals((await runOn(storage, answering(() => GOOD).execute)).counts.completed, 10);
});

Deno.test("dispatch: retries a line that fails on a working engine once, then records its error", async () => {
  const storage = disk(60);
  const isBad = (n: number | undefined) => n !== undefined && (n % 7 === 0 || n === 59);
  const { execute, asked } = answering((n) => isBad(n) ? BROKEN : GOOD);
  const { counts } = await runOn(storage, execute);
  const bad = Array.from({ length: 60 }, (_, n) => n).filter(isBad);
  assertEquals([counts.completed, ids(storage, "err.jsonl")], [60 - bad.length, bad]);
  for (let n = 0; n < 60; n++) assertEquals(asked.get(n), isBad(n) ? 2 : 1, `line ${n}`);
});

Deno.test("dispatch: a job whose every line fails on a working engine ends", async () => {
  for (const [count, throws] of [[3, false], [40, false], [40, true]] as const) {
    const storage = disk(count);
    const { execute } = answering((n) => {
      if (n === undefined) return GOOD;
      if (throws) throw new Error("lost");
      return BROKEN;
    });
    const { counts } = await runOn(storage, execute);
    assertEquals([counts.completed, counts.failed], [0, count]);
  }
});

Deno.test("dispatch: one broken engine among several stops no job and turns no line into an error", async () => {
  const random = seeded(5);
  const storage = disk(200);
  const { execute } = answering((n) => {
    if (n === 66) return { ...BROKEN, engine: "c" };
    const engine = "abc"[Math.floor(3 * random())];
    return engine === "b" ? { ...BROKEN, engine } : { ...GOOD, engine };
  });
  const { counts } = await runOn(storage, execute, { parallel: 20 });
  assertEquals([counts.completed, ids(storage, "err.jsonl")], [199, [66]]);
});

Deno.test("dispatch: a good answer of one engine does not clear another engine's failures", async () => {
  const storage = disk(50);
  const failed: number[] = [];
  const { execute, asked } = answering((n) => {
    const isFirst = n !== undefined && n < 10 && !failed.includes(n);
    if (isFirst) failed.push(n);
    return isFirst ? { ...BROKEN, engine: "broken" } : { ...GOOD, engine: "well" };
  });
  const { counts } = await runOn(storage, execute);
  assertEquals([counts.completed, counts.failed], [50, 0]);
  assertEquals(asked.get(3), 2);
});

Deno.test("dispatch: stops the job when all engines keep failing for the maximum time", async () => {
  const storage = disk(5);
  const { execute } = answering(() => ({ ...BROKEN, engine: "w1" }));
  const error = await assertRejects(() => runOn(storage, execute, { patienceMs: 0 }), BatchError);
  assertEquals(error.code, "engine_unavailable");
  assertEquals(ids(storage, "err.jsonl"), []);
});
