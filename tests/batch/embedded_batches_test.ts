import { assertEquals } from "@std/assert";
import { createBatch, linesOf, upload, waitFor } from "../../routes/testing_batches.ts";
import { batch, inFolder, readLines } from "./commands.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { NatsServer, natsServerPath } from "../nats/nats_server.ts";
import { fullTier } from "../../testing/tier.ts";

/* Batch lines for embeddings, beside others, on the demo model: by the command, over NATS and by the server. */

const EMBEDDINGS = "/v1/embeddings";

const line = (custom_id: string, url: string, body: Record<string, unknown>) =>
  JSON.stringify({ custom_id, method: "POST", url, body: { model: "demo", ...body } });

const VECTORS = [
  line("one", EMBEDDINGS, { input: "a fox in the snow" }),
  line("many", EMBEDDINGS, { input: ["a fox", "a hare", "a fox in the snow"], encoding_format: "base64" }),
  line("ids", EMBEDDINGS, { input: [[1, 2, 3], [4]], dimensions: 8 }),
  line("wide", EMBEDDINGS, { input: "a", dimensions: 100_000 }),
];
const MIXED = [
  ...VECTORS,
  line("chat", "/v1/chat/completions", {
    messages: [{ role: "user", content: "Hi" }],
    max_tokens: 8,
    temperature: 0,
  }),
  line("rank", "/v1/rerank", { query: "a", documents: ["b"] }),
];
const REFUSED = [["rank", "not_supported"], ["wide", "invalid_value"]];

interface AnsweredLine {
  custom_id: string;
  response: {
    body: { data?: { embedding: unknown }[]; choices?: unknown; usage?: unknown; error?: { code: string } };
  };
}

/** Returns the parts of lines that are equal in every run. */
const lasting = (lines: readonly AnsweredLine[]) =>
  lines.map(({ custom_id, response: { body: { data, choices, usage } } }) => ({
    custom_id,
    data,
    choices,
    usage,
  }))
    .sort((a, b) => a.custom_id < b.custom_id ? -1 : 1);

const refusals = (lines: readonly AnsweredLine[]) =>
  lines.map(({ custom_id, response }) => [custom_id, response.body.error?.code]).sort();

fullTier.test("batches: embeddings and chats run by the command, over NATS and with another pooling", async () => {
  await inFolder(MIXED, async (path) => {
    const alone = await batch(["run", path("in.jsonl"), "--out", path("out.jsonl")]).output();
    assertEquals(alone.code, 0, new TextDecoder().decode(alone.stderr));
    const answered = await readLines<AnsweredLine>(path("out.jsonl"));
    assertEquals(refusals(await readLines<AnsweredLine>(path("out.errors.jsonl"))), REFUSED);
    const by = new Map(answered.map(({ custom_id, response }) => [custom_id, response.body]));
    assertEquals([by.get("many")!.data!.length, by.get("ids")!.data!.length], [3, 2]);
    assertEquals((by.get("ids")!.data![0].embedding as number[]).length, 8);

    const mean = ["run", path("in.jsonl"), "--out", path("mean.jsonl"), "--pooling", "mean"];
    assertEquals((await batch(mean).output()).code, 0);
    const [one] = await readLines<AnsweredLine>(path("mean.jsonl"));
    assertEquals(JSON.stringify(one.response.body.data) === JSON.stringify(by.get("one")!.data), false);
    if (natsServerPath() === undefined) return;

    await using server = await NatsServer.start(["-js"]);
    const worker = batch(["worker", "--nats", server.url, "--threads", "1"]);
    const far = await batch(["run", path("in.jsonl"), "--out", path("far.jsonl"), "--nats", server.url])
      .output();
    worker.kill("SIGINT");
    await worker.output();
    assertEquals(far.code, 0, new TextDecoder().decode(far.stderr));
    assertEquals(lasting(await readLines<AnsweredLine>(path("far.jsonl"))), lasting(answered));
    assertEquals(refusals(await readLines<AnsweredLine>(path("far.errors.jsonl"))), REFUSED);
  });
});

Deno.test("batches: the server answers embeddings, and a bad line gets its own 400", async () => {
  await inFolder(MIXED, async (path) => {
    await withLiveServer([], async ({ client }) => {
      const { id } = await createBatch(client, await upload(client, VECTORS), { endpoint: EMBEDDINGS });
      const ended = await waitFor(client, id, "completed", "failed");
      assertEquals(ended.request_counts, { total: 4, completed: 3, failed: 1 });
      const answers: AnsweredLine[] = await linesOf(client, ended.output_file_id);
      assertEquals(answers.map(({ response }) => response.body.data!.length).sort(), [1, 2, 3]);
      assertEquals(refusals(await linesOf(client, ended.error_file_id)), [["wide", "invalid_value"]]);
    }, path("data"));
  });
});
