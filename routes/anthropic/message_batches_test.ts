import Anthropic from "@anthropic-ai/sdk";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { inputLimits } from "../../jobs/check.ts";
import { digestOf, KeyRing } from "../access/keys.ts";
import { refusalBody } from "../execute.ts";
import { GENERATION_URLS } from "../generations.ts";
import { type BatchServer, inDataFolder, withBatches } from "../testing_batches.ts";
import { type ErrorBody, usual } from "../testing_anthropic.ts";

/* /v1/messages/batches through Anthropic's unmodified client. */

const lineLimits = { ...inputLimits(GENERATION_URLS), refusalBody };

type Options = Parameters<typeof withBatches>[1];
type Params = Anthropic.MessageCreateParamsNonStreaming;

/** Runs a test with a server over a folder and Anthropic's client. */
function withMessageBatches(
  path: string,
  options: Options,
  test: (client: Anthropic, server: BatchServer) => Promise<void>,
): Promise<void> {
  return withBatches(path, { lineLimits, ...options }, (server) => test(clientOf(server), server));
}

function clientOf({ base }: BatchServer, apiKey = "unused"): Anthropic {
  return new Anthropic({ baseURL: base, apiKey, maxRetries: 0, logLevel: "off" });
}

const requestsOf = (count: number, params: Partial<Params> = {}) =>
  Array.from({ length: count }, (_, i) => ({ custom_id: `id-${i}`, params: { ...usual, ...params } }));

async function ended(client: Anthropic, id: string) {
  for (const end = performance.now() + 10_000;;) {
    const batch = await client.messages.batches.retrieve(id);
    if (batch.processing_status === "ended") return batch;
    if (performance.now() > end) throw new Error(`After ten seconds the batch is ${JSON.stringify(batch)}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function resultsOf(client: Anthropic, id: string) {
  const results = await Array.fromAsync(await client.messages.batches.results(id));
  return new Map(results.map(({ custom_id, result }) => [custom_id, result]));
}

const counts = { processing: 0, succeeded: 0, errored: 0, canceled: 0, expired: 0 };

Deno.test("message batches: answer every request as /v1/messages does, and bad ones with their error", async () => {
  await inDataFolder((path) =>
    withMessageBatches(path, {}, async (client) => {
      const requests = [
        ...requestsOf(2),
        { custom_id: "model", params: { ...usual, model: "other" } },
        { custom_id: "field", params: { ...usual, max_tokens: -1 } },
        { custom_id: "stream", params: { ...usual, stream: true as const } as unknown as Params },
      ];
      const made = await client.messages.batches.create({ requests });
      assert(made.id.startsWith("msgbatch_"));
      assertEquals([made.type, made.processing_status, made.results_url], [
        "message_batch",
        "in_progress",
        null,
      ]);
      assertEquals(made.request_counts, { ...counts, processing: 5 });
      assertEquals(Date.parse(made.expires_at) - Date.parse(made.created_at), 24 * 3_600_000);
      const batch = await ended(client, made.id);
      assertEquals(batch.request_counts, { ...counts, succeeded: 2, errored: 3 });
      assert(batch.ended_at! >= batch.created_at && batch.results_url !== null);

      // The downloads exceed the limit, so each one that ends early must free its place.
      for (let i = 0; i < 20; i++) {
        const url = `${client.baseURL}${batch.results_url}`;
        const head = await fetch(url, { method: "HEAD" });
        const left = await fetch(url);
        await left.body!.cancel();
        assertEquals([head.status, left.status], [200, 200]);
      }

      const results = await resultsOf(client, made.id);
      assertEquals([...results.keys()], ["id-0", "id-1", "model", "field", "stream"]);
      const { id: _, ...whole } = await client.messages.create(usual);
      const answer = results.get("id-1") as Anthropic.Messages.MessageBatchSucceededResult;
      assertEquals({ ...answer.message, id: undefined }, { ...whole, id: undefined } as unknown);
      const typesOf = ["model", "field", "stream"].map((id) => {
        const { type, error } = results.get(id) as Anthropic.Messages.MessageBatchErroredResult;
        return [type, error.type, error.error.type, error.request_id!.startsWith("req_")];
      });
      assertEquals(typesOf, [
        ["errored", "error", "not_found_error", true],
        ["errored", "error", "invalid_request_error", true],
        ["errored", "error", "invalid_request_error", true],
      ]);
    })
  );
});

Deno.test("message batches: a cancelled batch tells answered, failed and canceled requests apart, also after a restart", async () => {
  await inDataFolder(async (path) => {
    let id = "";
    await withMessageBatches(path, { tokenMs: 2, parallel: 1 }, async (client) => {
      const requests = [{ custom_id: "bad", params: { ...usual, model: "other" } }, ...requestsOf(500)];
      ({ id } = await client.messages.batches.create({ requests }));
      await assertRejects(() => client.messages.batches.results(id), Anthropic.AnthropicError);
      const early = await fetch(`${client.baseURL}/v1/messages/batches/${id}/results`);
      const { error } = await early.json() as ErrorBody;
      assertEquals([early.status, error.type, error.code], [
        400,
        "invalid_request_error",
        "batch_has_not_ended",
      ]);
      await assertRejects(() => client.messages.batches.delete(id), Anthropic.BadRequestError);
      for (;;) {
        const { request_counts } = await client.messages.batches.retrieve(id);
        if (request_counts.succeeded > 0 && request_counts.errored === 1) break;
      }
    });
    await withMessageBatches(path, { tokenMs: 2, parallel: 1 }, async (client) => {
      const cancelling = await client.messages.batches.cancel(id);
      assertEquals([cancelling.processing_status, cancelling.results_url], ["canceling", null]);
      assert(cancelling.cancel_initiated_at! >= cancelling.created_at);
      await ended(client, id);
    });
    await withMessageBatches(path, {}, async (client) => {
      const { request_counts } = await client.messages.batches.retrieve(id);
      const { succeeded, canceled } = request_counts;
      assert(succeeded > 0 && canceled > 0);
      assertEquals(request_counts, { ...counts, succeeded, errored: 1, canceled });
      const results = await resultsOf(client, id);
      const types = [...results.values()].map(({ type }) => type);
      assertEquals(types.filter((type) => type === "canceled").length, canceled);
      assertEquals([types.length, results.get("bad")!.type], [501, "errored"]);
      await assertRejects(() => client.messages.batches.cancel(id), Anthropic.BadRequestError);
    });
  });
});

Deno.test("message batches: requests without an answer after 24 hours are expired", async () => {
  await inDataFolder(async (path) => {
    let now = 1_800_000_000;
    const options = { tokenMs: 2, parallel: 1, now: () => now, sweepMs: 5 };
    await withMessageBatches(path, options, async (client) => {
      const { id } = await client.messages.batches.create({ requests: requestsOf(300) });
      now += 24 * 3600 + 1;
      const { request_counts } = await ended(client, id);
      const { succeeded, expired } = request_counts;
      assertEquals(request_counts, { ...counts, succeeded, expired });
      assertEquals([succeeded + expired, expired > 0], [300, true]);
      const types = [...(await resultsOf(client, id)).values()].map(({ type }) => type);
      assertEquals(types.filter((type) => type === "expired").length, expired);
    });
  });
});

Deno.test("message batches: belong to a key, and are listed in both directions and deleted", async () => {
  const named = (name: string, key: string) => ({ name, digest: digestOf(key) });
  const apiKeys = new KeyRing([], [named("alice", "a"), named("bob", "b")]);
  await inDataFolder((path) =>
    withMessageBatches(path, { apiKeys }, async (_, server) => {
      const [alice, bob] = [clientOf(server, "a"), clientOf(server, "b")];
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) {
        ids.unshift((await alice.messages.batches.create({ requests: requestsOf(1) })).id);
      }
      for (const id of ids) await ended(alice, id);
      const page = async (params: Anthropic.Messages.BatchListParams) => {
        const { data, has_more, first_id, last_id } = await alice.messages.batches.list(params);
        assertEquals([first_id, last_id], [data.at(0)?.id ?? null, data.at(-1)?.id ?? null]);
        return [data.map(({ id }) => ids.indexOf(id)), has_more];
      };
      assertEquals(await page({ limit: 2 }), [[0, 1], true]);
      assertEquals(await page({ limit: 2, after_id: ids[1] }), [[2, 3], true]);
      assertEquals(await page({ limit: 2, before_id: ids[4] }), [[2, 3], true]);
      assertEquals(await page({ limit: 2, before_id: ids[1] }), [[0], false]);
      assertEquals(await page({ before_id: ids[0] }), [[], false]);
      const all = await Array.fromAsync(alice.messages.batches.list({ limit: 2 }));
      assertEquals(all.map(({ id }) => id), ids);
      for (
        const wrong of [{ after_id: "msgbatch_1" }, { before_id: ids[0], after_id: ids[1] }, { limit: 1001 }]
      ) {
        await assertRejects(() => alice.messages.batches.list(wrong), Anthropic.BadRequestError);
      }

      assertEquals((await bob.messages.batches.list()).data, []);
      const calls = ["retrieve", "cancel", "delete", "results"] as const;
      for (const call of calls) {
        await assertRejects(async () => await bob.messages.batches[call](ids[0]), Anthropic.NotFoundError);
      }
      const removed = await alice.messages.batches.delete(ids[0]);
      assertEquals(removed, { id: ids[0], type: "message_batch_deleted" });
      for (const call of calls) {
        await assertRejects(async () => await alice.messages.batches[call](ids[0]), Anthropic.NotFoundError);
      }
      const files = await Array.fromAsync(Deno.readDir(`${path}/files`));
      const jobs = await Array.fromAsync(Deno.readDir(`${path}/jobs`));
      assertEquals([files.length, jobs.length], [4, 4]);
    })
  );
});

Deno.test("message batches: wrong bodies are refused in Anthropic's shape, and leave nothing", async () => {
  const limits = { bodyBytes: 4096, uploadBytes: 20_000 };
  await inDataFolder((path) =>
    withMessageBatches(path, { limits }, async (_, { base }) => {
      const one = { custom_id: "a", params: usual };
      const text = JSON.stringify({ requests: [one] });
      const wrong: [body: unknown, status: number, code: string, param: string | null][] = [
        ["", 400, "invalid_json", null],
        [text.slice(0, -1), 400, "invalid_json", null],
        [`${text}}`, 400, "invalid_json", null],
        [{}, 400, "missing_required_parameter", "requests"],
        [{ requests: [] }, 400, "invalid_value", "requests"],
        [{ requests: {} }, 400, "invalid_value", "requests"],
        [{ requests: [one, 3] }, 400, "invalid_value", "requests"],
        [{ requests: 3, others: [one] }, 400, "invalid_value", "requests"],
        [{ requests: [one, { params: usual }] }, 400, "missing_required_parameter", "requests[1].custom_id"],
        [{ requests: [{ ...one, custom_id: "a b" }] }, 400, "invalid_value", "requests[0].custom_id"],
        [{ requests: [one, one] }, 400, "duplicate_custom_id", "requests[1].custom_id"],
        [{ requests: [{ custom_id: "a" }] }, 400, "missing_required_parameter", "requests[0].params"],
        ['{"requests":[{"custom_id":"a","params":{"a":}}]}', 400, "invalid_json", "requests[0]"],
        [
          { requests: [{ ...one, params: { a: "a".repeat(5000) } }] },
          413,
          "request_too_large",
          "requests[0]",
        ],
        [{ requests: [one], padding: "a".repeat(15_000) }, 200, "", null],
        [{ requests: [one], padding: "a".repeat(25_000) }, 413, "request_too_large", null],
        [`{"requests":${"[".repeat(100)}`, 400, "invalid_json", null],
      ];
      for (const [body, status, code, param] of wrong) {
        const response = await fetch(`${base}/v1/messages/batches`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: typeof body === "string" ? body : JSON.stringify(body),
        });
        const answer = await response.json() as ErrorBody;
        assertEquals(response.status, status, JSON.stringify(answer));
        if (status === 200) continue;
        assertEquals([answer.type, answer.error.code, answer.error.param], ["error", code, param]);
        assertEquals(response.headers.get("request-id"), answer.request_id);
      }
      const type = { "content-type": "text/html" };
      const media = await fetch(`${base}/v1/messages/batches`, { method: "POST", headers: type, body: text });
      assertEquals([media.status, (await media.json()).type], [415, "error"]);
      const { data } = await (await fetch(`${base}/v1/messages/batches`)).json();
      const files = await Array.fromAsync(Deno.readDir(`${path}/files`));
      const uploads = await Array.fromAsync(Deno.readDir(`${path}/uploads`));
      assertEquals([data.length, files.length, uploads.length], [1, 1, 0]);
    })
  );
});

Deno.test("message batches: requests that do not end share the memory of all bodies that are arriving", async () => {
  const start = `{"requests":[{"custom_id":"a","params":{"x":"${"a".repeat(60 * 1024)}`;
  await inDataFolder((path) =>
    withMessageBatches(path, { limits: { bodiesBytes: 140 * 1024, bodiesMs: 20 } }, async (_, { base }) => {
      // The memory of the first requests is free again for the others.
      for (let round = 0; round < 2; round++) {
        const cut = new AbortController();
        const statuses: (number | undefined)[] = [];
        const all = Array.from({ length: 4 }, async () => {
          const body = new ReadableStream({
            start: (sink) => sink.enqueue(new TextEncoder().encode(start)),
          });
          const headers = { "content-type": "application/json" };
          const init = { method: "POST", headers, body, signal: cut.signal };
          const response = await fetch(`${base}/v1/messages/batches`, init).catch(() => undefined);
          await response?.body?.cancel();
          if (statuses.push(response?.status) === 3) cut.abort();
        });
        await Promise.all(all);
        assertEquals(statuses, [429, 429, 429, undefined]);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    })
  );
});
