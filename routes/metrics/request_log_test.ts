import { assert, assertEquals, assertMatch } from "@std/assert";
import { createApp } from "../app.ts";
import { GENERATIONS } from "../generations.ts";
import { digestOf, KeyRing } from "../access/keys.ts";
import type { LogEntry } from "./request_record.ts";
import { FakeEngine } from "../testing.ts";
import { until, withServer } from "../testing_server.ts";

const PROMPT = "Nobody else's business";

/** Returns an app and its log; `ask` posts JSON with a key. */
function logged(limits: { requestsAtOnce?: number; tokensPerMinute?: number } = {}) {
  const entries: LogEntry[] = [];
  const keys = new KeyRing([], [{ name: "alice", digest: digestOf("1"), ...limits }]);
  const engine = new FakeEngine();
  const app = createApp(engine, { apiKeys: keys, log: (entry) => entries.push(entry) });
  const ask = (path: string, body: object, key = "1") =>
    app.request(path, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  return { app, engine, entries, ask };
}

Deno.test("request log: has each request's route, status, times and token counts, and none of its texts", async () => {
  const { ask, app, entries } = logged();
  const answer = await ask("/v1/completions", { model: "demo", prompt: PROMPT, max_tokens: 5 });
  const { usage, choices } = await answer.json();
  await ask("/v1/chat/completions", { model: "nothing", messages: [{ role: "user", content: PROMPT }] });
  await ask("/v1/completions", {}, "wrong");
  await app.request(`/somewhere/${encodeURIComponent(PROMPT)}?q=${PROMPT}`, {
    headers: { authorization: "Bearer 1" },
  });
  const { time, id, ms, ...first } = entries[0];
  assertMatch(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assertEquals(id, answer.headers.get("x-request-id"));
  assert(ms >= 0);
  assertEquals(first, {
    key: "alice",
    method: "POST",
    route: "/v1/completions",
    status: 200,
    model: "demo",
    prompt_tokens: usage.prompt_tokens,
    completion_tokens: 5,
    cached_tokens: 0,
    queue_ms: first.queue_ms,
    prefill_ms: first.prefill_ms,
    decode_ms: first.decode_ms,
    finish: ["length"],
  });
  assertEquals(entries.slice(1).map(({ key, route, status, error }) => [key, route, status, error]), [
    ["alice", "/v1/chat/completions", 404, "model_not_found"],
    [undefined, "/v1/completions", 401, "invalid_api_key"],
    ["alice", "other", 404, "unknown_url"],
  ]);
  const text = JSON.stringify(entries);
  assert(!text.includes("Nobody") && !text.includes(choices[0].text));
});

Deno.test("request log: counts the prompt once if a request has several answers", async () => {
  const { ask, entries } = logged();
  const { usage } =
    await (await ask("/v1/completions", { model: "demo", prompt: PROMPT, n: 3, max_tokens: 4 }))
      .json();
  const [{ prompt_tokens, completion_tokens, finish }] = entries;
  assertEquals([prompt_tokens, completion_tokens], [usage.prompt_tokens, usage.completion_tokens]);
  assertEquals(finish, ["length", "length", "length"]);
});

Deno.test("token limit: counts prompts and answers, also of streams, and refuses the next request", async () => {
  for (const stream of [false, true]) {
    const { ask, entries } = logged({ tokensPerMinute: 30 });
    const body = { model: "demo", prompt: [1, 2, 3, 4, 5], max_tokens: 30, ignore_eos: true, stream };
    await (await ask("/v1/completions", body)).text();
    const refused = await ask("/v1/completions", body);
    assertEquals(refused.status, 429);
    const wait = Number(refused.headers.get("retry-after"));
    assert(wait === 10 || wait === 11, `${wait}`); // 5 tokens over, at 30 a minute
    assertMatch((await refused.json()).error.message, /"alice" has a limit of 30 tokens a minute/);
    assertEquals(entries.at(-1)!.error, "rate_limit_exceeded");
    // Endpoints without a model can take as much of the server's time, so they are refused too.
    assertEquals((await ask("/tokenize", { content: "a" })).status, 429);
  }
});

Deno.test("token limit: if a stream's client disconnects, the tokens sent until then count", async () => {
  const { ask, engine } = logged({ tokensPerMinute: 1000 });
  const stream = await ask("/v1/completions", {
    model: "demo",
    prompt: [1],
    max_tokens: 900,
    ignore_eos: true,
    stream: true,
  });
  const reader = stream.body!.getReader();
  await reader.read();
  await reader.cancel();
  await until(() => engine.stats().running === 0);
  const { generatedTokens } = engine.stats();
  assert(generatedTokens > 0 && generatedTokens < 900, `${generatedTokens}`);
  // Most tokens are left, so another request is admitted.
  assertEquals((await ask("/v1/completions", { model: "demo", prompt: [1], max_tokens: 1 })).status, 200);
});

Deno.test("request log: an entry is written after the last byte of the response, or when the client disconnects", async () => {
  const entries: LogEntry[] = [];
  const log = (entry: LogEntry) => entries.push(entry);
  await withServer({ log, tokenMs: 5 }, async ({ base, post }) => {
    const body = { model: "demo", prompt: "a", max_tokens: 20, ignore_eos: true, stream: true };
    const whole = await post("/v1/completions", body);
    assertEquals(entries.length, 0);
    await whole.text();
    await until(() => entries.length === 1);
    assertEquals([entries[0].left, entries[0].completion_tokens], [undefined, 20]);
    assert(entries[0].ms >= 5 * 19, `${entries[0].ms}`);
    const abort = new AbortController();
    const cut = await fetch(`${base}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, max_tokens: 500 }),
      signal: abort.signal,
    });
    await cut.body!.getReader().read();
    abort.abort();
    await until(() => entries.length === 2);
    assertEquals([entries[1].status, entries[1].left], [200, true]);
    assert(entries[1].completion_tokens! > 0 && entries[1].completion_tokens! < 500);
  });
});

Deno.test("token limit: embedded texts count, and texts that the engine refuses do not", async () => {
  const { ask, entries } = logged({ tokensPerMinute: 30 });
  const tooLong = { input: Array(1025).fill(1) };
  assertEquals((await ask("/v1/embeddings", tooLong)).status, 400);
  const body = { input: [[1, 2, 3], Array(40).fill(4)] };
  assertEquals((await ask("/v1/embeddings", body)).status, 200);
  const { route, prompt_tokens, completion_tokens } = entries.at(-1)!;
  assertEquals([route, prompt_tokens, completion_tokens], ["/v1/embeddings", 43, 0]);
  assertEquals((await ask("/v1/embeddings", body)).status, 429);
});

Deno.test("request log: has model and tokens for every generating endpoint", async () => {
  for (const { url, endpoint } of GENERATIONS) {
    const { ask, entries } = logged();
    const content = endpoint.route.request.body!.content as Record<string, { example?: object }>;
    const { example } = content["application/json"];
    const { status } = await ask(url, { ...example, model: "demo" });
    const [entry] = entries;
    if (status !== 200) {
      assert(entry.error, url); // not supported by the fake model
      continue;
    }
    assertEquals([entry.model, entry.route], ["demo", url]);
    assert(entry.prompt_tokens! > 0, url);
  }
});
