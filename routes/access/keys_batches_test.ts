import { assertEquals, assertRejects } from "@std/assert";
import { delay } from "@std/async/delay.js";
import OpenAI, { toFile } from "openai";
import { digestOf, KeyRing } from "./keys.ts";
import { type BatchServer, inDataFolder, withBatches } from "../testing_batches.ts";

const named = (name: string, key: string, limits = {}) => ({ name, digest: digestOf(key), ...limits });

function clientOf({ base }: BatchServer, apiKey: string): OpenAI {
  return new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
}

async function startBatch(client: OpenAI, lines: number): Promise<{ file: string; batch: string }> {
  const body = { model: "demo", prompt: "a", max_tokens: 4 };
  const content = Array.from({ length: lines }, (_, i) => {
    return JSON.stringify({ custom_id: `${i}`, method: "POST", url: "/v1/completions", body });
  }).join("\n");
  const { id } = await client.files.create({
    purpose: "batch",
    file: await toFile(new Blob([content]), "a.jsonl"),
  });
  const batch = await client.batches.create({
    input_file_id: id,
    endpoint: "/v1/completions",
    completion_window: "24h",
  });
  return { file: id, batch: batch.id };
}

async function completed(client: OpenAI, batch: string): Promise<void> {
  while ((await client.batches.retrieve(batch)).status !== "completed") await delay(20);
}

async function sees(client: OpenAI) {
  const [files, batches] = [await client.files.list(), await client.batches.list()];
  return [
    files.data.filter(({ purpose }) => purpose === "batch").length,
    batches.data.length,
  ];
}

Deno.test("keys: files and batches belong to a key's name, so a new key with that name finds them after a restart", async () => {
  await inDataFolder(async (path) => {
    let ids = { file: "", batch: "" };
    const before = new KeyRing([], [named("alice", "a1"), named("bob", "b1")]);
    await withBatches(path, { apiKeys: before, tokenMs: 5 }, async (server) => {
      ids = await startBatch(clientOf(server, "a1"), 40);
      assertEquals(await sees(clientOf(server, "a1")), [1, 1]);
      assertEquals(await sees(clientOf(server, "b1")), [0, 0]);
      const bob = clientOf(server, "b1");
      await assertRejects(() => bob.files.content(ids.file), OpenAI.NotFoundError);
      await assertRejects(() => bob.batches.cancel(ids.batch), OpenAI.NotFoundError);
    });
    // Restarted with a new key under the name, beside a plain key: the batch continues for its owner.
    const after = new KeyRing(["plain"], [named("bob", "b1"), named("alice", "a2")]);
    await withBatches(path, { apiKeys: after }, async (server) => {
      const alice = clientOf(server, "a2");
      await completed(alice, ids.batch);
      const { request_counts, output_file_id } = await alice.batches.retrieve(ids.batch);
      assertEquals(request_counts, { total: 40, completed: 40, failed: 0 });
      assertEquals(
        (await (await alice.files.content(output_file_id!)).text()).trimEnd().split("\n").length,
        40,
      );
      assertEquals(await sees(clientOf(server, "b1")), [0, 0]);
      assertEquals(await sees(clientOf(server, "plain")), [0, 0]);
      await assertRejects(() => clientOf(server, "a1").files.list(), OpenAI.AuthenticationError);
      await assertRejects(
        () => clientOf(server, "plain").files.content(output_file_id!),
        OpenAI.NotFoundError,
      );
    });
  });
});

Deno.test("keys: data stored without keys belongs to the key without a name, even if there are named keys too", async () => {
  await inDataFolder(async (path) => {
    await withBatches(path, {}, async ({ client }) => void await startBatch(client, 2));
    for (const ring of [new KeyRing(["plain"]), new KeyRing(["plain"], [named("alice", "a1")])]) {
      await withBatches(path, { apiKeys: ring }, async (server) => {
        assertEquals(await sees(clientOf(server, "plain")), [1, 1]);
      });
    }
    await withBatches(path, {}, async ({ client }) => assertEquals(await sees(client), [1, 1]));
  });
});

Deno.test("keys: batch lines are not limited by a key's limits, and do not count towards them", async () => {
  await inDataFolder(async (path) => {
    const ring = new KeyRing([], [named("alice", "a1", { requestsAtOnce: 1, tokensPerMinute: 10 })]);
    await withBatches(path, { apiKeys: ring }, async (server) => {
      const alice = clientOf(server, "a1");
      const { batch } = await startBatch(alice, 20);
      await completed(alice, batch);
      assertEquals((await alice.batches.retrieve(batch)).request_counts!.completed, 20);
      await alice.completions.create({ model: "demo", prompt: "a", max_tokens: 20 });
      await assertRejects(
        () => alice.completions.create({ model: "demo", prompt: "a" }),
        OpenAI.RateLimitError,
      );
      // Files and batches stay available when the limit is reached.
      assertEquals(await sees(alice), [1, 1]);
    });
  });
});
