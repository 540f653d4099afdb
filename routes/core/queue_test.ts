import { assert, assertEquals } from "@std/assert";
import { FakeEngine } from "../testing.ts";
import { until, withServer } from "../testing_server.ts";
import { noteEnd, noteStart, secondsUntilRoom } from "./queue.ts";

/** Returns an engine with `waiting` waiting requests. */
function engineWith(waiting: number, running = 4): FakeEngine {
  const engine = new FakeEngine();
  const stats = { ...engine.stats(), running, waiting };
  engine.stats = () => stats;
  return engine;
}

Deno.test("secondsUntilRoom: estimates from queue length and recent rate, within bounds", () => {
  const engine = engineWith(10);
  noteStart(engine, 0);
  for (let i = 1; i <= 100; i++) noteEnd(engine, i * 500);
  assertEquals(secondsUntilRoom(engine, 50_500), 5); // 10 waiting, two end per second
  assertEquals(secondsUntilRoom(engine, 50_000 + 32 * 500), 10); // no further answers end, so the rate falls
  assertEquals(secondsUntilRoom(engine, 10 ** 9), 59);
  for (let i = 0; i < 100; i++) noteEnd(engine, 10 ** 9 + i);
  assertEquals(secondsUntilRoom(engine, 10 ** 9 + 100), 1);
});

Deno.test("secondsUntilRoom: grows with time until the first answer ends, and ignores idle time", () => {
  const engine = engineWith(10);
  assertEquals(secondsUntilRoom(engine, 0), 1);
  noteStart(engine, 0);
  assertEquals(secondsUntilRoom(engine, 2000), 20);
  noteEnd(engine, 2000);
  const idle = engineWith(0, 0);
  noteStart(idle, 0);
  noteEnd(idle, 1000);
  noteStart(idle, 10 ** 9);
  const { running, waiting } = { running: 4, waiting: 8 };
  idle.stats = () => ({ ...engine.stats(), running, waiting });
  assertEquals(secondsUntilRoom(idle, 10 ** 9 + 1000), 8);
});

Deno.test("full queue: retry-after is longer for a longer queue", async () => {
  const waits: number[] = [];
  for (const queue of [1, 40]) {
    await withServer({ slots: 1, queue, tokenMs: 10 }, async ({ engine, post }) => {
      const chat = { model: "demo", messages: [{ role: "user", content: "Hi" }] };
      const all = Array.from({ length: queue + 1 }, () => post("/v1/chat/completions", chat));
      await until(() => engine.stats().waiting === queue);
      await new Promise((resolve) => setTimeout(resolve, 100));
      const response = await post("/v1/chat/completions", chat);
      const { error } = await response.json();
      assertEquals([response.status, error.code, Object.keys(error).length], [429, "queue_full", 4]);
      waits.push(Number(response.headers.get("retry-after")));
      for (const running of all) await (await running).body?.cancel();
    });
  }
  assertEquals(waits[0], 1);
  assert(waits[1] > 1 && waits[1] < 60, `${waits}`);
});
