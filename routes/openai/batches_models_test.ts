import { assert, assertEquals } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { answerLines, identities } from "../../lib/batch/lines.ts";
import { loadedModels, ModelRefused } from "../../engine/mod.ts";
import { testPool, type TestPoolOptions } from "../../engine/models/testing.ts";
import { digestOf, KeyRing } from "../access/keys.ts";
import { FakeEngine } from "../testing.ts";
import {
  chatLine,
  createBatch,
  inDataFolder,
  linesOf,
  upload,
  waitFor,
  withBatches,
} from "../testing_batches.ts";

/** Runs `test` against a server whose batches are answered by several fake models. */
async function withModels(
  path: string,
  options: TestPoolOptions,
  test: (
    server: Parameters<Parameters<typeof withBatches>[2]>[0] & ReturnType<typeof testPool>,
  ) => Promise<void>,
) {
  // A busy machine may need some time between two lines.
  const turns = { patienceMs: 20, turnMs: 20, batchTurnMs: 3000, pauseMs: 500, quietMs: 100 };
  const models = testPool({ budget: 10, turns, ...options });
  const answer = answerLines(models.pool);
  await withBatches(path, {
    served: models.pool,
    lanes: 2,
    settings: (names: readonly string[]) =>
      Promise.resolve(
        Object.fromEntries(names.filter((name) => models.pool.find(name)).map((name) => [name, `${name} 1`])),
      ),
    execute: answer,
  }, (server) => test({ ...server, ...models }));
  await models.pool.close();
}

const lineOf = (model: string, n: number) => chatLine(`${model}-${n}`, { model, max_tokens: 20 });
const loadsOf = (log: readonly string[]) => log.filter((what) => what.startsWith("load")).length;

Deno.test("batches: the named model answers each line, one model after the other", async () => {
  await inDataFolder((path) =>
    withModels(path, {}, async ({ client, log }) => {
      const lines = Array.from({ length: 60 }, (_, n) => lineOf("abc"[n % 3], n));
      const batch = await createBatch(client, await upload(client, [...lines, lineOf("gone", 60)]));
      const ended = await waitFor(client, batch.id, "completed");
      assertEquals(ended.request_counts, { total: 61, completed: 60, failed: 1 });
      for (const { custom_id, response } of await linesOf(client, ended.output_file_id!)) {
        assertEquals(response.body.choices[0].message.content[0], custom_id[0]);
      }
      const [{ custom_id, response }] = await linesOf(client, ended.error_file_id!);
      assertEquals([custom_id, response.status_code, response.body.error.code], [
        "gone-60",
        404,
        "model_not_found",
      ]);
      assertEquals(loadsOf(log), 3, `${log}`);
    })
  );
});

Deno.test("batches: lines share the engine by the weight of their owner's key", async () => {
  const ring = new KeyRing([], [{ name: "a", digest: digestOf("1"), weight: 3 }]);
  const engine = new FakeEngine();
  const answer = answerLines(loadedModels([engine]), { weightOf: (owner) => ring.weightOf(owner) });
  const body = { messages: [{ role: "user", content: "Hi" }] };
  const line = { url: "/v1/chat/completions", body, priority: "batch" } as const;
  for (const owner of [ring.admit("1")!.owner, "gone"]) {
    await answer({ ...line, owner, signal: new AbortController().signal });
  }
  assertEquals(engine.requests.map(({ weight }) => weight), [3, 1]);
});

Deno.test("batches: batches of two models both finish with few loads when memory holds one model", async () => {
  await inDataFolder((path) =>
    withModels(path, {}, async ({ client, log }) => {
      const batches = await Promise.all(["a", "b"].map(async (model) => {
        const lines = Array.from({ length: 40 }, (_, n) => lineOf(model, n));
        return await createBatch(client, await upload(client, lines));
      }));
      for (const { id } of batches) {
        const { request_counts } = await waitFor(client, id, "completed");
        assertEquals(request_counts, { total: 40, completed: 40, failed: 0 });
      }
      assert(loadsOf(log) <= 6, `${log}`);
    })
  );
});

Deno.test("batches: a batch whose model is missing after a restart waits, and delays no other", async () => {
  await inDataFolder(async (path) => {
    let id = "";
    await withModels(path, { tokenMs: 10 }, async ({ client }) => {
      const lines = Array.from({ length: 20 }, (_, n) => lineOf("a", n));
      id = (await createBatch(client, await upload(client, lines))).id;
      await waitFor(client, id, "in_progress");
    });
    await withModels(path, { models: { b: 10 } }, async ({ client, reports }) => {
      const other = await createBatch(client, await upload(client, [lineOf("b", 1)]));
      assertEquals((await waitFor(client, other.id, "completed")).request_counts?.completed, 1);
      assertEquals((await client.batches.retrieve(id)).status, "in_progress");
      assertEquals(reports.map((report) => (report as Error).message), [
        `Batch ${id} waits for the model that it began with: a "a 1" (now not recorded)`,
      ]);
    });
    await withModels(path, {}, async ({ client }) => {
      const { request_counts } = await waitFor(client, id, "completed");
      assertEquals(request_counts, { total: 20, completed: 20, failed: 0 });
    });
  });
});

Deno.test("batches: a model that cannot be loaded fails its own lines only", async () => {
  const opening = (id: string) => {
    if (id === "b") throw new ModelRefused(new Error("its data are cut short"));
    if (id === "c") throw new ModelRefused(new Error("it needs 99 bytes"), 99);
  };
  const models = testPool({ budget: 10, opening, models: { a: 10, b: 10, c: 99, d: 99 } });
  const answer = answerLines(models.pool);
  const settings = identities(models.pool, ({ id }) => {
    return Promise.try(() => {
      if (id !== "c") opening(id); // reading a model's identity needs no room
      return { model: id };
    });
  });
  const options = {
    served: models.pool,
    execute: answer,
  };
  await inDataFolder((path) =>
    withBatches(path, { ...options, lanes: 2, settings }, async ({ client, reports }) => {
      const lines = Array.from({ length: 40 }, (_, n) => lineOf("bcda"[n % 4], n));
      const { id } = await createBatch(client, await upload(client, lines));
      const ended = await waitFor(client, id, "completed");
      assertEquals(ended.request_counts, { total: 40, completed: 10, failed: 30 });
      const failed = await linesOf(client, ended.error_file_id);
      const codes = new Set(
        failed.map(({ custom_id, response: { status_code, body: { error } } }) =>
          `${custom_id[0]} ${status_code} ${error.code} ${error.needed_bytes}`
        ),
      );
      assertEquals([...codes].toSorted(), [
        "b 503 model_load_failed undefined",
        "c 503 no_memory_for_model 99",
        "d 503 no_memory_for_model 99",
      ]);
      assertEquals(reports, []);
    })
  );
  await models.pool.close();
});

Deno.test("batches: if a batch's model is replaced, no answer of the new model is kept, and the batch waits for its own model", async () => {
  let version = 1;
  let asked = 0;
  const options = {
    pauseMs: 10,
    sweepMs: 20,
    settings: () => Promise.resolve({ model: `a ${version}` }),
    execute: async () => {
      if (++asked === 7) version = 2;
      const body = { by: version };
      await delay(5);
      return { status: 200, body };
    },
  };
  await inDataFolder((path) =>
    withBatches(path, options, async ({ client, reports }) => {
      const lines = Array.from({ length: 20 }, (_, n) => lineOf("a", n));
      const { id } = await createBatch(client, await upload(client, lines));
      const waits = `Batch ${id} waits for the model that it began with: model "a 1" (now "a 2")`;
      while (!reports.some((report) => (report as Error).message === waits)) await delay(5);
      const { status, request_counts } = await client.batches.retrieve(id);
      assert(status === "in_progress" && request_counts!.completed < 7, JSON.stringify(request_counts));
      version = 1;
      const ended = await waitFor(client, id, "completed");
      assertEquals(ended.request_counts, { total: 20, completed: 20, failed: 0 });
      const answers = await linesOf(client, ended.output_file_id);
      assertEquals(answers.map(({ response }) => response.body.by), Array(20).fill(1));
    })
  );
});

Deno.test("batches: a model added later under a missing name does not change a running batch", async () => {
  const there = ["a"];
  let asked = 0;
  const options = {
    pauseMs: 10,
    sweepMs: 20,
    settings: (names: readonly string[]) =>
      Promise.resolve(Object.fromEntries(names.filter((name) => there.includes(name)).map((n) => [n, 1]))),
    execute: () => {
      if (++asked === 7) there.push("b");
      return Promise.resolve({ status: 200, body: {} });
    },
  };
  await inDataFolder((path) =>
    withBatches(path, options, async ({ client, reports }) => {
      const lines = Array.from({ length: 20 }, (_, n) => lineOf("ab"[n % 2], n));
      const { id } = await createBatch(client, await upload(client, lines));
      const { request_counts } = await waitFor(client, id, "completed");
      assertEquals(request_counts, { total: 20, completed: 20, failed: 0 });
      assertEquals(reports, []);
    })
  );
});

Deno.test("batches: requests can use a batch's model at once, and get its memory for another model when the lines end", async () => {
  await inDataFolder((path) =>
    withModels(path, {}, async ({ client, log }) => {
      const batch = await createBatch(
        client,
        await upload(client, Array.from({ length: 100 }, (_, n) => lineOf("a", n))),
      );
      await waitFor(client, batch.id, "in_progress");
      const ask = (model: string) =>
        client.chat.completions.create({ model, messages: [{ role: "user", content: "Hi" }] });
      assertEquals((await ask("a")).model, "a");
      assertEquals((await ask("b")).model, "b");
      assertEquals((await waitFor(client, batch.id, "completed")).request_counts?.completed, 100);
      assertEquals(log, ["load a", "close a", "load b", "close b", "load a"]);
    })
  );
});
