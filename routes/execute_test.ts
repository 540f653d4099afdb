import { assert, assertEquals, assertRejects } from "@std/assert";
import { createApp } from "./app.ts";
import { execute } from "./execute.ts";
import { FakeEngine, type FakeEngineOptions } from "./testing.ts";
import { until } from "./testing_server.ts";

const chat = { model: "demo", messages: [{ role: "user", content: "Hi" }] };
const completion = { model: "demo", prompt: ["a", "b"], logprobs: 1, echo: true };

/** Returns the answer without the fields that differ from call to call. */
function lasting(body: Record<string, unknown>): Record<string, unknown> {
  return { ...body, id: undefined, created: undefined, request_id: undefined };
}

Deno.test("execute: returns the server's status and body for answers and refusals", async () => {
  const options: FakeEngineOptions = { contextLength: 200 };
  const app = createApp(new FakeEngine(options));
  const requests: [string, unknown][] = [
    ["/v1/chat/completions", chat],
    ["/v1/chat/completions", { ...chat, n: 3, logprobs: true, top_logprobs: 2 }],
    ["/v1/completions", completion],
    ["/v1/completions", { ...completion, model: "other" }],
    ["/v1/completions", { ...completion, n: 1000 }],
    ["/v1/chat/completions", { ...chat, tools: [{}] }],
    ["/v1/chat/completions", { ...chat, messages: [{ role: "user", content: "raise" }] }],
    ["/v1/completions", { model: "demo", prompt: "x".repeat(500) }],
    ["/v1/messages", { ...chat, max_tokens: 9 }],
    ["/v1/messages", chat],
    ["/v1/messages", { ...chat, max_tokens: 9, model: "other" }],
    ["/v1/completions", null],
    ["/v1/completions", [completion]],
  ];
  for (const [url, body] of requests) {
    const headers = { "content-type": "application/json" };
    const response = await app.request(url, { method: "POST", headers, body: JSON.stringify(body) });
    const { status, body: executed } = await execute(new FakeEngine(options), { url, body });
    assertEquals(status, response.status);
    assertEquals(lasting(executed), lasting(await response.json()));
  }
});

Deno.test("execute: passes priority and salt to the engine", async () => {
  const engine = new FakeEngine();
  const url = "/v1/chat/completions";
  await execute(engine, { url, body: chat, priority: "batch", cacheSalt: "salt" });
  await execute(engine, { url, body: chat });
  assertEquals(engine.requests.map(({ priority }) => priority), ["batch", "interactive"]);
  assertEquals(engine.requests.map(({ cacheSalt }) => cacheSalt), ["salt", undefined]);
});

Deno.test("execute: on every endpoint, a constraint is compiled with the line's priority and salt", async () => {
  const form = { response_format: { type: "json_object" } };
  const schema = { type: "object" };
  const bodies: Readonly<Record<string, object>> = {
    "/v1/chat/completions": { ...chat, ...form },
    "/v1/completions": { model: "demo", prompt: "a", ...form },
    "/v1/responses": { model: "demo", input: "a", text: { format: { type: "json_object" } } },
    "/v1/messages": { ...chat, max_tokens: 9, output_format: { type: "json_schema", schema } },
  };
  for (const [url, body] of Object.entries(bodies)) {
    const engine = new FakeEngine();
    const sender = { priority: "batch", cacheSalt: "salt" } as const;
    await execute(engine, { url, body, ...sender });
    assertEquals(engine.checks, [sender], url);
  }
});

Deno.test("execute: refuses streams, unknown urls and deep values", async () => {
  const engine = new FakeEngine();
  const refuse = async (url: string, body: unknown) => {
    const { status, body: answer } = await execute(engine, { url, body });
    const { code, param } = answer.error as { code: string; param: string | null };
    return [status, code, param];
  };
  const url = "/v1/completions";
  assertEquals(await refuse(url, { ...completion, stream: true }), [400, "unsupported_value", "stream"]);
  assertEquals(await refuse("/v1/images/edits", completion), [404, "unknown_url", "url"]);
  const deep = JSON.parse("[".repeat(200_000) + "]".repeat(200_000));
  assertEquals(await refuse(url, { ...completion, metadata: deep }), [400, "invalid_json", null]);
  assertEquals(engine.requests, []);
});

Deno.test("execute: failures are results without internals, and are reported to the operator", async () => {
  const failure = new Error("secret");
  const engine = new FakeEngine({ failure });
  const errors: unknown[] = [];
  const onError = (error: unknown) => errors.push(error);
  const { status, body } = await execute(engine, { url: "/v1/completions", body: completion, onError });
  assertEquals(status, 500);
  assert(!JSON.stringify(body).includes("secret"));
  assertEquals(errors, [failure]);
});

Deno.test("execute: an abort rejects with its reason and frees the slots", async () => {
  const engine = new FakeEngine({ contextLength: 1_000_000, tokenMs: 1, slots: 1 });
  const abort = new AbortController();
  const body = { ...chat, ignore_eos: true, n: 3 };
  const running = execute(engine, { url: "/v1/chat/completions", body, signal: abort.signal });
  await until(() => engine.stats().running === 1 && engine.stats().waiting === 2);
  const reason = new Error("enough");
  abort.abort(reason);
  assertEquals(await assertRejects(() => running), reason);
  await until(() => engine.stats().running === 0 && engine.stats().waiting === 0);
  await assertRejects(() =>
    execute(engine, { url: "/v1/completions", body: completion, signal: abort.signal })
  );
});

Deno.test("execute: a full queue and a closing engine are results that can be retried", async () => {
  const full = new FakeEngine({ slots: 1, queue: 0 });
  const body = { ...chat, n: 2 };
  assertEquals((await execute(full, { url: "/v1/chat/completions", body })).status, 429);
  await until(() => full.stats().running === 0);
  const closed = new FakeEngine();
  await closed.close();
  assertEquals((await execute(closed, { url: "/v1/chat/completions", body: chat })).status, 503);
});

Deno.test("execute: answers embeddings and rankings whole, with the line's priority and salt", async () => {
  const engine = new FakeEngine();

  const options = { priority: "batch", cacheSalt: "a" } as const;
  const embed = { url: "/v1/embeddings", body: { model: "demo", input: ["a", "b"] }, ...options };
  const { status, body } = await execute(engine, embed);
  assertEquals([status, (body.data as unknown[]).length], [200, 2]);
  assertEquals(engine.embeds.map(({ priority, cacheSalt }) => [priority, cacheSalt]), [["batch", "a"]]);
  const rerank = { url: "/v1/rerank", body: { model: "demo", query: "a", documents: ["b"] }, ...options };
  assertEquals((await execute(engine, rerank)).status, 400);
  const ranking = new FakeEngine({ pooled: { kind: "rank", size: 2 } });
  assertEquals((await execute(ranking, rerank)).status, 200);
  assertEquals((await execute(ranking, embed)).status, 400);
});
