import { assert, assertEquals, assertRejects } from "@std/assert";
import { toFile } from "openai";
import { inputLimits } from "../../jobs/check.ts";
import { GENERATION_URLS } from "../generations.ts";
import {
  chatLine,
  createBatch,
  inDataFolder,
  linesOf,
  upload,
  waitFor,
  withBatches,
} from "../testing_batches.ts";

Deno.test("files: the official client uploads, lists pages, reads and deletes", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ client, base }) => {
      const content = "line\n".repeat(3) + "ü";
      const file = await client.files.create({
        file: await toFile(new TextEncoder().encode(content), "../ä.jsonl"),
        purpose: "batch",
        expires_after: { anchor: "created_at", seconds: 3600 },
      });
      const { id, created_at, ...rest } = file;
      assert(id.startsWith("file-"));
      assert(Math.abs(created_at - Date.now() / 1000) < 5);
      assertEquals({ ...rest, _request_id: undefined }, {
        object: "file",
        bytes: 17,
        expires_at: created_at + 3600,
        filename: "ä.jsonl",
        purpose: "batch",
        status: "processed",
        _request_id: undefined,
      });
      assertEquals(await (await client.files.content(id)).text(), content);
      assertEquals((await client.files.retrieve(id)).id, id);

      const ids = [id];
      for (let i = 0; i < 6; i++) ids.push(await upload(client, [`${i}`]));
      const listed = await Array.fromAsync(client.files.list({ limit: 3 }));
      assertEquals(listed.map((file) => file.id), ids.toReversed());
      const ascending = await client.files.list({ limit: 2, order: "asc", after: ids[1], purpose: "batch" });
      assertEquals(ascending.data.map((file) => file.id), ids.slice(2, 4));
      assertEquals(ascending.has_more, true);
      const page = await (await fetch(`${base}/v1/files?limit=2&after=${ids[4]}`)).json();
      assertEquals([page.object, page.first_id, page.last_id], ["list", ids[3], ids[2]]);

      assertEquals({ ...await client.files.delete(id) }, { id, object: "file", deleted: true });
      await assertRejects(() => client.files.retrieve(id), Error, "404");
      await assertRejects(() => client.files.content(id), Error, "404");
      await assertRejects(() => client.files.delete(id), Error, "404");
      assertEquals((await Array.fromAsync(Deno.readDir(`${path}/files`))).length, 6);
    })
  );
});

Deno.test("batches: a batch runs from the upload to the answers, which are in input order", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ client, reports }) => {
      const lines = Array.from({ length: 30 }, (_, n) => chatLine(`q${n}`));
      lines[7] = chatLine("q7", { temperature: 9 });
      const input = await upload(client, lines);
      const created = await createBatch(client, input, { metadata: { job: "night" } });
      assertEquals([created.object, created.status], ["batch", "validating"]);
      assertEquals(created.expires_at, created.created_at + 86_400);
      const batch = await waitFor(client, created.id, "completed");
      assertEquals(batch.request_counts, { total: 30, completed: 29, failed: 1 });
      assertEquals(batch.metadata, { job: "night" });
      assert(batch.in_progress_at! <= batch.finalizing_at! && batch.finalizing_at! <= batch.completed_at!);
      assertEquals([batch.errors, batch.failed_at, batch.cancelled_at], [null, null, null]);
      const answers = await linesOf(client, batch.output_file_id);
      assertEquals(
        answers.map(({ custom_id }) => custom_id),
        Array.from({ length: 30 }, (_, n) => `q${n}`).filter((id) => id !== "q7"),
      );
      assertEquals(answers[0].response.status_code, 200);
      assertEquals(answers[0].response.body.choices[0].message.content, "Hello, wörld 🙂!");
      const [error] = await linesOf(client, batch.error_file_id);
      assertEquals([error.custom_id, error.response.status_code], ["q7", 400]);
      assertEquals(error.response.body.error.param, "temperature");
      assertEquals(batch.usage!.total_tokens, batch.usage!.input_tokens + batch.usage!.output_tokens);
      assert(batch.usage!.input_tokens > 0);
      const output = await client.files.retrieve(batch.output_file_id!);
      assertEquals([output.purpose, output.filename], ["batch_output", `${batch.id}_output.jsonl`]);
      assertEquals(reports, []);
      // The journal is removed, and the input may be deleted now.
      const left = await Array.fromAsync(Deno.readDir(`${path}/jobs/${batch.id}`));
      assertEquals(left.map(({ name }) => name).sort(), ["errors.jsonl", "output.jsonl"]);
      await client.files.delete(input);
      await client.files.delete(batch.output_file_id!);
    })
  );
});

Deno.test("batches: count reasoning tokens as the answers of each endpoint do", async () => {
  const reply = () => "<|start|>think\nParis…<|start|>text\nHere";
  const asked: [string, string, Record<string, unknown>][] = [
    ["/v1/chat/completions", "completion_tokens_details", {}],
    ["/v1/responses", "output_tokens_details", { messages: undefined, input: "a" }],
    ["/v1/messages", "output_tokens_details", {
      max_tokens: 500,
      thinking: { type: "enabled", budget_tokens: 99 },
    }],
  ];
  await inDataFolder((path) =>
    withBatches(path, { reply, lineLimits: inputLimits(GENERATION_URLS) }, async ({ client }) => {
      for (const [endpoint, details, body] of asked) {
        const lines = ["a", "b"].map((id) => chatLine(id, body).replace("/v1/chat/completions", endpoint));
        const { id } = await createBatch(client, await upload(client, lines), { endpoint });
        const batch = await waitFor(client, id, "completed");
        assertEquals(batch.request_counts!.completed, 2, endpoint);
        const thought = (await linesOf(client, batch.output_file_id)).map(({ response }) => {
          const { reasoning_tokens, thinking_tokens } = response.body.usage[details];
          return reasoning_tokens ?? thinking_tokens;
        });
        assert(thought[0] > 0, endpoint);
        assertEquals(batch.usage!.output_tokens_details.reasoning_tokens, thought[0] + thought[1], endpoint);
      }
    })
  );
});

Deno.test("batches: a bad line fails the batch, and the error names the line; with strict: false only that line fails", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ client, engine }) => {
      const lines = [chatLine("a"), "{", chatLine("a"), chatLine("b", { stream: true })];
      lines.push(chatLine("c").replace("/v1/chat/completions", "/v1/completions"));
      const input = await upload(client, lines);
      const { id } = await createBatch(client, input);
      const failed = await waitFor(client, id, "failed");
      assertEquals(failed.errors!.data!.map(({ code, line }) => [code, line]), [
        ["invalid_json", 2],
        ["duplicate_custom_id", 3],
        ["stream_not_allowed", 4],
        ["endpoint_mismatch", 5],
      ]);
      assertEquals(failed.errors!.object, "list");
      assert(failed.failed_at);
      assertEquals([failed.output_file_id, failed.error_file_id], [null, null]);
      assertEquals(engine.requests.length, 0);

      const lenient = await createBatch(client, input, { strict: false });
      const batch = await waitFor(client, lenient.id, "completed");
      assertEquals(batch.request_counts, { total: 5, completed: 1, failed: 4 });
      const blank = await createBatch(client, await upload(client, ["", " "]));
      const { errors } = await waitFor(client, blank.id, "failed");
      assertEquals(errors!.data![0].code, "input_unreadable");
      assert(!errors!.data![0].message!.includes(path), "the server's folders are its own");
    })
  );
});

Deno.test("batches: a cancelled batch keeps its answers and reports the rest; lists have pages", async () => {
  await inDataFolder((path) =>
    withBatches(path, { tokenMs: 3, slots: 2, parallel: 2 }, async ({ client, engine }) => {
      const lines = Array.from({ length: 40 }, (_, n) => chatLine(`q${n}`));
      const input = await upload(client, lines);
      const { id } = await createBatch(client, input);
      const waiting = await createBatch(client, input);
      while ((await client.batches.retrieve(id)).request_counts!.completed < 4) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      await assertRejects(() => client.files.delete(input), Error, "has not ended");
      const cancelling = await client.batches.cancel(id);
      assertEquals(cancelling.status, "cancelling");
      assert(cancelling.cancelling_at);
      const batch = await waitFor(client, id, "cancelled");
      const { total, completed, failed } = batch.request_counts!;
      assert(completed < 20, `${completed} of 40 lines were answered before the batch ended`);
      assertEquals([total, completed + failed], [40, 40]);
      const answers = await linesOf(client, batch.output_file_id);
      const errors = await linesOf(client, batch.error_file_id);
      assertEquals([answers.length, errors.length], [completed, failed]);
      assertEquals(errors[0].error.code, "batch_cancelled");
      assertEquals(errors[0].response, null);
      await assertRejects(() => client.batches.cancel(id), Error, "nothing to cancel");

      // A waiting batch is cancelled without running.
      await client.batches.cancel(waiting.id);
      const never = await waitFor(client, waiting.id, "cancelled");
      assertEquals(never.request_counts!.failed + never.request_counts!.completed, 40);
      assertEquals(engine.stats().running, 0);

      const more = [id, waiting.id];
      for (let i = 0; i < 3; i++) more.push((await createBatch(client, input)).id);
      for (const other of more.slice(2)) await client.batches.cancel(other);
      for (const other of more.slice(2)) await waitFor(client, other, "cancelled");
      const listed = await Array.fromAsync(client.batches.list({ limit: 2 }));
      assertEquals(listed.map((batch) => batch.id), more.toReversed());
    })
  );
});

Deno.test("batches: progress events are sent until the batch ends", async () => {
  await inDataFolder((path) =>
    withBatches(path, { tokenMs: 2, slots: 2, parallel: 2 }, async ({ client, base }) => {
      const input = await upload(client, Array.from({ length: 60 }, (_, n) => chatLine(`q${n}`)));
      const { id } = await createBatch(client, input);
      const response = await fetch(`${base}/v1/batches/${id}/events`);
      assertEquals(response.headers.get("content-type"), "text/event-stream; charset=utf-8");
      const events = (await response.text()).trim().split("\n\n").map((event) => event.replace("data: ", ""));
      assertEquals(events.pop(), "[DONE]");
      const parsed = events.map((event) => JSON.parse(event));
      assert(parsed.length >= 2);
      assertEquals(parsed.at(-1).batch, JSON.parse(JSON.stringify(await client.batches.retrieve(id))));
      assertEquals(parsed.at(-1).batch.status, "completed");
      for (const { object } of parsed) assertEquals(object, "batch.progress");
      assert(parsed.some((event) => event.output_tokens_per_second > 0));
      for (const method of ["HEAD", "GET"]) {
        const other = await fetch(`${base}/v1/batches/batch_none/events`, { method });
        assertEquals(other.status, 404);
        await other.body?.cancel();
      }
      const head = await fetch(`${base}/v1/files/${input}/content`, { method: "HEAD" });
      assertEquals([head.status, await head.text()], [200, ""]);
    })
  );
});

Deno.test("batches: a batch that expires reports its remaining lines as expired; files expire too", async () => {
  await inDataFolder(async (path) => {
    let now = 1_000_000;
    const options = { tokenMs: 3, slots: 1, parallel: 1, sweepMs: 10, now: () => now };
    await withBatches(path, options, async ({ client }) => {
      const file = await client.files.create({
        file: await toFile(new TextEncoder().encode("{}"), "short.jsonl"),
        purpose: "batch",
        expires_after: { anchor: "created_at", seconds: 3600 },
      });
      const input = await upload(client, Array.from({ length: 40 }, (_, n) => chatLine(`q${n}`)));
      const { id, expires_at } = await createBatch(client, input, {
        completion_window: "2h",
        output_expires_after: { anchor: "created_at", seconds: 3600 },
      });
      assertEquals(expires_at, now + 7200);
      while ((await client.batches.retrieve(id)).request_counts!.completed < 3) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      now += 7200;
      const batch = await waitFor(client, id, "expired");
      assertEquals(batch.expired_at, now);
      const errors = await linesOf(client, batch.error_file_id);
      assertEquals(errors[0].error.code, "batch_expired");
      assertEquals(batch.request_counts!.completed + errors.length, 40);
      await assertRejects(() => client.files.retrieve(file.id), Error, "404");
      assertEquals((await client.files.retrieve(batch.output_file_id!)).expires_at, now + 3600);
    });
  });
});

Deno.test("batches: each key sees only its own files and batches, and every route needs a key", async () => {
  await inDataFolder((path) =>
    withBatches(path, { apiKeys: ["first", "second"] }, async ({ client, base }) => {
      const input = await upload(client, [chatLine("a")]);
      const { id } = await createBatch(client, input);
      await waitFor(client, id, "completed");
      const other = client.withOptions({ apiKey: "second" });
      assertEquals((await other.files.list()).data, []);
      assertEquals((await other.batches.list()).data, []);
      await assertRejects(() => other.files.content(input), Error, "404");
      await assertRejects(() => other.files.delete(input), Error, "404");
      await assertRejects(() => other.batches.retrieve(id), Error, "404");
      await assertRejects(() => other.batches.cancel(id), Error, "404");
      await assertRejects(() => createBatch(other, input), Error, "404");
      await assertRejects(() => other.batches.list({ after: id }), Error, "400");
      const routes = [
        "GET /v1/files",
        "POST /v1/files",
        `GET /v1/files/${input}`,
        `DELETE /v1/files/${input}`,
      ];
      routes.push(`GET /v1/files/${input}/content`, "GET /v1/batches", "POST /v1/batches");
      routes.push(`GET /v1/batches/${id}`, `POST /v1/batches/${id}/cancel`, `GET /v1/batches/${id}/events`);
      for (const route of routes) {
        const [method, path] = route.split(" ");
        const response = await fetch(base + path, { method });
        assertEquals([route, response.status], [route, 401]);
        await response.body?.cancel();
      }
    })
  );
});

Deno.test("batches: a batch waits for its own model, and a second server cannot use the data folder", async () => {
  await inDataFolder(async (path) => {
    let id = "";
    await withBatches(path, { tokenMs: 5, slots: 1, parallel: 1 }, async ({ client }) => {
      await assertRejects(
        () => withBatches(path, {}, () => Promise.resolve()),
        Error,
        "another server uses it",
      );
      id = (await createBatch(
        client,
        await upload(client, Array.from({ length: 20 }, (_, n) => chatLine(`q${n}`))),
      )).id;
      await waitFor(client, id, "in_progress");
    });
    await withBatches(path, { settings: { model: "other" } }, async ({ client, reports }) => {
      assertEquals((await client.batches.retrieve(id)).status, "in_progress");
      assertEquals(reports.map((report) => (report as Error).message), [
        `Batch ${id} waits for the model that it began with: model "demo" (now "other")`,
      ]);
    });
    await withBatches(path, {}, async ({ client, reports }) => {
      const batch = await waitFor(client, id, "completed");
      assertEquals(batch.request_counts, { total: 20, completed: 20, failed: 0 });
      assertEquals(reports, []);
    });
  });
});

Deno.test("metrics: /metrics has the numbers of ended and unfinished batches and the bytes of stored files", async () => {
  await inDataFolder(async (path) => {
    await withBatches(path, { storageBytes: 10_000 }, async ({ base, client }) => {
      const figures = async () => {
        const text = await (await fetch(`${base}/metrics`)).text();
        return [...text.matchAll(/^compy_(?:files|batches)_(.*) (\d+)$/gm)].map((
          [, name, value],
        ) => [name, +value]);
      };
      const ended = (completed: number, failed: number) => [
        ['ended_total{status="completed"}', completed],
        ['ended_total{status="failed"}', failed],
        ['ended_total{status="expired"}', 0],
        ['ended_total{status="cancelled"}', 0],
      ];
      assertEquals(await figures(), [
        ["bytes", 0],
        ["limit_bytes", 10_000],
        ["unfinished", 0],
        ...ended(0, 0),
      ]);
      const input = await upload(client, [chatLine("a")]);
      const good = await waitFor(client, (await createBatch(client, input)).id, "completed");
      await waitFor(client, (await createBatch(client, await upload(client, ["bad"]))).id, "failed");
      const files = await Promise.all([input, good.output_file_id!].map((id) => client.files.retrieve(id)));
      const bytes = files.reduce((sum, file) => sum + file.bytes, "bad".length);
      assertEquals(await figures(), [
        ["bytes", bytes],
        ["limit_bytes", 10_000],
        ["unfinished", 0],
        ...ended(1, 1),
      ]);
    });
  });
});
