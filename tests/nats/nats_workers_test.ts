import { assert, assertEquals, assertRejects } from "@std/assert";
import { delay } from "@std/async/delay.js";
import type { Execute } from "../../jobs/run/runner.ts";
import { ask, askAll, Bench, GOOD, never, seconds, URL } from "./nats_bench.ts";
import { natsServerPath } from "./nats_server.ts";
import { fullTier } from "../../testing/tier.ts";

/* Coordinators and workers in this process, on a real nats-server. nats_test.ts reports a missing one. */

const ignore = natsServerPath() === undefined;

fullTier.test({
  name:
    "workers: lines that nobody wants any more end at once without a worker, and a later one finds nothing",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const cancel = new AbortController();
    const lines = Array.from({ length: 20 }, (_, n) => ask(coordinator, n, cancel.signal));
    await delay(200);
    cancel.abort(new Error("cancelled"));
    assert(await seconds(() => Promise.allSettled(lines)) < 1);
    for (const line of lines) await assertRejects(() => line, Error, "cancelled");
    await coordinator.close();
    assertEquals(await bench.streams(), []);
    const worker = await bench.worker("late", GOOD);
    await delay(1200);
    assertEquals(worker.counts.lines, 0);
  },
});

fullTier.test({
  name:
    "workers: a line that is cancelled in a worker's hands ends at once, and the worker hears when the run ends",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const begun = Promise.withResolvers<AbortSignal>();
    await bench.worker("slow", async ({ signal }) => {
      begun.resolve(signal);
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      throw new Error("unreachable");
    });
    const cancel = new AbortController();
    const line = ask(coordinator, 0, cancel.signal);
    const signal = await begun.promise;
    cancel.abort(new Error("cancelled"));
    await assertRejects(() => line, Error, "cancelled");
    await coordinator.close();
    for (let n = 0; n < 100 && !signal.aborted; n++) await delay(20);
    assert(signal.aborted);
  },
});

fullTier.test({
  name: "workers: idle runs do not slow down a busy run",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const [busy] = [await bench.coordinator(), await bench.coordinator(), await bench.coordinator()];
    await bench.worker("w", GOOD);
    await askAll(busy, 8);
    assert(await seconds(() => askAll(busy, 400)) < 10);
  },
});

fullTier.test({
  name: "workers: a worker with one place alternates between two runs",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const runs = [await bench.coordinator(), await bench.coordinator()];
    const done = [0, 0];
    const work = runs.map((run, which) =>
      Promise.all(Array.from({ length: 40 }, async (_, n) => {
        await ask(run, n);
        done[which] += 1;
      }))
    );
    const slow: Execute = async () => {
      await delay(5);
      return { status: 200, body: {} };
    };
    await bench.worker("w", slow, { parallel: 1 });
    await Promise.race(work);
    const [least, most] = done.toSorted((a, b) => a - b);
    assertEquals(most, 40);
    assert(least >= 20, `${done} lines were answered`);
    await Promise.all(work);
  },
});

fullTier.test({
  name: "workers: a stopping worker finishes its lines and takes no new ones",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator({ leaseMs: 1500 });
    const begun = Promise.withResolvers<void>();
    const slow: Execute = async ({ body, signal }) => {
      begun.resolve();
      await delay(4000, { signal });
      return { status: 200, body };
    };
    const worker = await bench.worker("slow", slow, { parallel: 1 });
    const [first, second] = [ask(coordinator, 0), ask(coordinator, 1)];
    await begun.promise;
    worker.stop();
    await worker.ended;
    await bench.worker("next", GOOD);
    assertEquals([(await first).engine, worker.counts.lines], ["slow", 1]);
    assertEquals((await second).engine, "next");
    assertEquals(coordinator.stats, { repeated: 0, late: 0 });
  },
});

fullTier.test({
  name: "workers: answers and failures name the worker",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const worker = await bench.worker("w", ({ body }) => {
      if (body.n === 3) {
        return Promise.resolve({ status: 500, body: { error: { message: "no" } }, final: true });
      }
      if (body.n === 4) return Promise.reject(new Error("never"));
      return Promise.resolve({ status: 200, body: {} });
    });
    const answers = await Promise.all([0, 1, 2, 3].map((n) => ask(coordinator, n)));
    assertEquals(
      answers.map(({ status, engine }) => [status, engine]),
      [200, 200, 200, 500].map((s) => [s, "w"]),
    );
    assertEquals(answers.map(({ final }) => final), [undefined, undefined, undefined, true]);
    const error = await assertRejects(() => ask(coordinator, 4), Error, "never");
    assertEquals((error as { engine?: string }).engine, "w");
    worker.stop();
    await worker.ended;
    assertEquals(worker.counts, { lines: 5 });
  },
});

fullTier.test({
  name:
    "workers: requests and answers that are larger than a message arrive whole, and nothing stays on the server",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    await bench.worker("w", ({ body }) =>
      Promise.resolve({
        status: 200,
        body: { text: (body.prompt as string).replaceAll("a", "xy"), n: (body.prompt as string).length },
      }));
    const prompt = `${"ab".repeat(2_000_000)}\u20ac`;
    const { status, body } = await coordinator.execute({
      url: URL,
      body: { prompt },
      priority: "batch",
      signal: never,
    });
    assertEquals([status, body.n], [200, prompt.length]);
    assert(body.text === prompt.replaceAll("a", "xy"));
    await coordinator.close();
    assertEquals(await bench.streams(), []);
  },
});

fullTier.test({
  name: "workers: a finished run leaves the stream to other runs",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const [one, other] = [await bench.coordinator(), await bench.coordinator()];
    const lines = askAll(other, 10);
    await one.close();
    assertEquals(await bench.streams(), ["compy-batch"]);
    await bench.worker("w", GOOD);
    assertEquals((await lines).length, 10);
    await other.close();
    assertEquals(await bench.streams(), []);
  },
});
