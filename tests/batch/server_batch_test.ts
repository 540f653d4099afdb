import { assert, assertEquals } from "@std/assert";
import type OpenAI from "openai";
import { chatLine, createBatch, linesOf, upload, waitFor } from "../../routes/testing_batches.ts";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { fullTier } from "../../testing/tier.ts";

/* Files and batches of a real server process on the demo model. */

const LINES = 60;
const lines = Array.from(
  { length: LINES },
  (_, n) => chatLine(`q${n}`, { max_tokens: 8 + n % 9, temperature: 0 }),
);

async function inFolder(test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempDir({ prefix: "server-batch-" });
  try {
    await test(path);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
}

/** Polls until `count` lines of the batch are answered, and checks that the count never decreases. */
async function answered(client: OpenAI, id: string, count: number, seen = 0): Promise<number> {
  for (;;) {
    const { request_counts } = await client.batches.retrieve(id);
    assert(request_counts!.completed >= seen, `${request_counts!.completed} after ${seen}`);
    seen = request_counts!.completed;
    if (seen >= count) return seen;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

async function texts(client: OpenAI, id: string): Promise<[string, string][]> {
  const batch = await waitFor(client, id, "completed");
  assertEquals(batch.request_counts, { total: LINES, completed: LINES, failed: 0 });
  assertEquals(batch.error_file_id, null);
  const answers = await linesOf(client, batch.output_file_id);
  return answers.map(({ custom_id, response }) => [custom_id, response.body.choices[0].message.content]);
}

fullTier.test("server: resumes batches with the same answers after a kill", () =>
  inFolder(async (path) => {
    let ids: string[] = [];
    let seen = 0;
    await withLiveServer([], async ({ client }, kill) => {
      const input = await upload(client, lines);
      ids = [(await createBatch(client, input)).id, (await createBatch(client, input)).id];
      seen = await answered(client, ids[0], 5);
      kill();
    }, path);
    // The next start removes a partial upload.
    await Deno.writeTextFile(`${path}/uploads/torn`, "half a f");
    await withLiveServer([], async ({ client }, kill) => {
      seen = await answered(client, ids[0], seen + 20, seen);
      kill();
    }, path);
    await withLiveServer([], async ({ client }) => {
      await answered(client, ids[0], LINES, seen);
      const first = await texts(client, ids[0]);
      assertEquals(first.map(([id]) => id), Array.from({ length: LINES }, (_, n) => `q${n}`));
      assertEquals(await texts(client, ids[1]), first);
      assertEquals([...Deno.readDirSync(`${path}/uploads`)], []);
    }, path);
  }));

fullTier.test("server: stops in time during a batch, which resumes later", () =>
  inFolder(async (path) => {
    let id = "";
    await withLiveServer([], async ({ client }) => {
      id = (await createBatch(client, await upload(client, lines))).id;
      await answered(client, id, 5);
    }, path);
    await withLiveServer([], async ({ client }) => void await texts(client, id), path);
  }));

Deno.test("server: a client's request runs at once although a batch uses all slots", () =>
  inFolder(async (path) => {
    await withLiveServer(["--parallel", "2"], async ({ client, metric }: LiveServer) => {
      const long = { max_tokens: 400, temperature: 0, ignore_eos: true };
      const input = await upload(client, Array.from({ length: 8 }, (_, n) => chatLine(`q${n}`, long)));
      const { id } = await createBatch(client, input);
      while (await metric("compy_requests_running") < 2) await new Promise((r) => setTimeout(r, 1));
      const before = await metric("compy_steps_total");
      await client.chat.completions.create({
        model: "demo",
        messages: [{ role: "user", content: "Hi" }],
        max_tokens: 1,
      });
      const steps = await metric("compy_steps_total") - before;
      // The steps were computed during two /metrics requests and one chat answer. A batch line takes 400 steps, so the
      // chat did not wait for one.
      assert(steps < 100, `it waited for ${steps} steps`);
      const { request_counts, status } = await client.batches.retrieve(id);
      assertEquals([request_counts!.completed, status], [0, "in_progress"]);
      await client.batches.cancel(id);
      await waitFor(client, id, "cancelled");
    }, path);
  }));
