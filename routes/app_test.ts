import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { EngineError } from "../engine/mod.ts";
import { createApp } from "./app.ts";
import { BATCH_ENDPOINTS, ENDPOINTS } from "./endpoints.ts";
import { GENERATION_URLS } from "./generations.ts";
import { FakeEngine } from "./testing.ts";

const messages = [{ role: "user", content: "Hi" }];

function open(options?: Parameters<typeof createApp>[1]) {
  const engine = new FakeEngine();
  const app = createApp(engine, options);
  const get = async (path: string) => await (await app.request(path)).json();
  const post = async (path: string, body: unknown) => {
    const headers = { "content-type": "application/json; charset=utf-8" };
    const response = await app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
    return await response.json();
  };
  return { app, engine, get, post };
}

Deno.test("tokenizer endpoints: use llama-server's formats", async () => {
  const { post } = open();
  assertEquals(await post("/tokenize", { content: "hé" }), { tokens: [104, 195, 169] });
  assertEquals(await post("/tokenize", { content: "a", add_special: true }), { tokens: [256, 97] });
  assertEquals(await post("/tokenize", { content: "<|end|>" }), { tokens: [257] });
  assertEquals((await post("/tokenize", { content: "<|end|>", parse_special: false })).tokens.length, 7);
  assertEquals(await post("/tokenize", { content: "aé<|end|>", with_pieces: true }), {
    tokens: [
      { id: 97, piece: "a" },
      { id: 195, piece: [195] },
      { id: 169, piece: [169] },
      { id: 257, piece: "<|end|>" },
    ],
  });
  assertEquals(await post("/detokenize", { tokens: [104, 195, 169, 257] }), {
    content: "hé<|end|>",
    prompt: "hé<|end|>",
  });
  assertEquals(await post("/detokenize", { tokens: [] }), { content: "", prompt: "" });
  const prompt = "<|start|>user\nHi<|end|><|start|>assistant\n";
  assertEquals(await post("/apply-template", { messages }), { prompt });
});

Deno.test("tokenizer endpoints: support vLLM's formats for lm-eval's remote tokenizer", async () => {
  const { get, post } = open();
  assertEquals(await get("/tokenizer_info"), {
    eos_token: "<|end|>",
    bos_token: "<s>",
    pad_token: null,
    chat_template: "{{ messages }}",
    model_max_length: 1024,
  });
  assertEquals(await post("/tokenize", { prompt: "a<|end|>", add_special_tokens: false }), {
    tokens: [97, 257],
    count: 2,
    max_model_len: 1024,
  });
  assertEquals((await post("/tokenize", { prompt: "a" })).tokens, [256, 97]);
  assertEquals((await post("/tokenize", { prompt: "a", content: "a" })).error.param, "prompt");
});

Deno.test("OpenAPI document: lists every route, its schemas, and the key if the server needs one", async () => {
  const { app, get } = open();
  const document = await get("/doc");
  assertEquals(document.openapi, "3.1.0");
  const isPage = (path: string) => path === "/" || path.startsWith("/page/");
  const served = app.routes.filter(({ method, path }) => {
    return method !== "ALL" && path !== "/doc" && !isPage(path);
  });
  const documented = Object.entries(document.paths as Record<string, object>).flatMap(([path, item]) => {
    return Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`);
  });
  const names = served.map(({ method, path }) => `${method} ${path.replace(/:(\w+)({\.\+})?/, "{$1}")}`);
  assertEquals(documented.sort(), names.sort());
  assertEquals(documented.length, ENDPOINTS.length);

  const references = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)];
  for (const [, name] of references) assert(name in document.components.schemas, name);
  const chat = document.components.schemas.ChatCompletionRequest;
  assertEquals(chat.required, ["messages"]);
  assertEquals(chat.properties.n, {
    type: ["integer", "null"],
    minimum: 1,
    maximum: 128,
    description: "Answers to each prompt",
  });
  assertEquals(document.security, undefined);

  const guarded = createApp(new FakeEngine(), { apiKeys: ["k"] });
  const response = await guarded.request("/doc", { headers: { authorization: "Bearer k" } });
  assertEquals((await response.json()).security, [{ bearer: [] }, { header: [] }]);
});

Deno.test("OpenAPI document: gives every operation an id and its statuses", async () => {
  const infill = { prefix: 1, suffix: 2, middle: 3, repo: undefined, file: undefined };
  const app = createApp(new FakeEngine({ infill }), { apiKeys: ["k"], batches: {} as never });
  const ranking = createApp(new FakeEngine({ pooled: { kind: "rank", size: 2 } }), { apiKeys: ["k"] });
  const document = await (await app.request("/doc", { headers: { authorization: "Bearer k" } })).json();
  type Operation = {
    operationId: string;
    tags: string[];
    responses: object;
    requestBody?: { content: object };
  };
  const all = Object.entries(document.paths as Record<string, Record<string, Operation>>)
    .flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({ path, method, operation }))
    );
  assertEquals(all.length, ENDPOINTS.length + BATCH_ENDPOINTS.length);
  assertEquals(new Set(all.map(({ operation }) => operation.operationId)).size, all.length);
  for (const { path, method, operation: { tags, responses, requestBody } } of all) {
    const statuses = Object.keys(responses).map(Number);
    const wanted = [200, 400, 401, 403, 500];
    if (method !== "get") wanted.push(503);
    if (requestBody) wanted.push(408, 413, 415);
    if (path.includes("{")) wanted.push(404);
    for (const status of wanted) assert(statuses.includes(status), `${method} ${path}: ${status}`);
    assertEquals(tags.length, 1);
  }
  const links = [...JSON.stringify(document).matchAll(/"operationId":"(\w+)","parameters"/g)].map(([, id]) =>
    id
  );
  assertEquals(links.length, 8);
  for (const id of links) assert(all.some(({ operation }) => operation.operationId === id), id);
  const generations = all.filter(({ path }) => GENERATION_URLS.includes(path));
  assertEquals(generations.length, GENERATION_URLS.length);
  for (const { path, operation: { responses, requestBody } } of generations) {
    assert([404, 429].every((status) => status in responses), path);
    const { example } = Object.values(requestBody!.content)[0];
    const body = JSON.stringify(example);
    const answer = await (/rerank|classify|moderations/.test(path) ? ranking : app).request(path, {
      method: "POST",
      headers: { authorization: "Bearer k", "content-type": "application/json" },
      body,
    });
    assertEquals(answer.status, 200, body);
    await answer.body?.cancel();
  }
  const { TokenId, TokenIdText, ModelId } = document.components.schemas;
  assertEquals([TokenId.maximum, ModelId.enum], [258, ["demo"]]);
  const id = new RegExp(TokenIdText.pattern);
  for (let n = 0; n < 1000; n++) assertEquals([n, id.test(`${n}`)], [n, n <= 258]);
  for (const text of ["", "00", "01", "-1", "1.0", "1e2", "258\n"]) assert(!id.test(text), text);
});

Deno.test("metrics: count answers by route pattern and status, never by the client's path", async () => {
  const { app, post } = open();
  await post("/v1/completions", { model: "demo", prompt: "a" });
  await post("/v1/completions", {});
  for (const path of ["/x", "/y", "/v1/models/demo", "/v1/models/other"]) await app.request(path);
  const response = await app.request("/metrics");
  assertStringIncludes(response.headers.get("content-type")!, "text/plain");
  const text = await response.text();
  for (
    const line of [
      'compy_http_responses_total{route="/v1/completions",status="200"} 1',
      'compy_http_responses_total{route="/v1/completions",status="400"} 1',
      'compy_http_responses_total{route="/v1/models/:model",status="404"} 1',
      'compy_http_responses_total{route="other",status="404"} 2',
      'compy_requests_running{model="demo"} 0',
      'compy_generated_tokens_total{model="demo"} 16',
      'compy_time_to_first_token_seconds_count{model="demo"} 1',
      'compy_inter_token_seconds_count{model="demo"} 15',
      'compy_queue_seconds_count{model="demo"} 1',
      'compy_cached_prompt_share_count{model="demo"} 1',
    ]
  ) assertStringIncludes(text, `${line}\n`);
  for (const line of text.trimEnd().split(/\n+/)) {
    assert(/^(# (HELP|TYPE) )?[a-z_]+(\{[^}]*\})? .+$/.test(line), line);
  }
});

Deno.test("/ready: is 200 while the server accepts work and 503 while it drains; /health is always 200", async () => {
  const lifecycle = { draining: false };
  const { app } = open({ lifecycle });
  const status = async (path: string, method = "GET") => (await app.request(path, { method })).status;
  assertEquals([await status("/health"), await status("/ready")], [200, 200]);
  lifecycle.draining = true;
  assertEquals([await status("/health"), await status("/ready")], [200, 503]);
  assertEquals(await status("/v1/chat/completions", "POST"), 503);
  assertEquals(await status("/v1/models"), 200);
});

Deno.test("/ready: reports a loading, failed or draining engine without internal details", async () => {
  const { app, engine } = open();
  const seen: unknown[] = [];
  const look = async () => {
    const response = await app.request("/ready");
    const body = await response.text();
    assert(!body.includes("0xdead"), body);
    const { status, error } = JSON.parse(body);
    const gauge = (await (await app.request("/metrics")).text()).match(/^compy_engine_state\{.*\} 1$/gm);
    seen.push([response.status, status ?? error.code, response.headers.has("retry-after"), gauge!.join()]);
    assertEquals((await app.request("/health")).status, 200);
  };
  await look();
  engine.become("failed", new EngineError("engine_failed", "device lost at 0xdead"));
  await look();
  engine.become("loading");
  await look();
  engine.become("ready");
  await look();
  engine.become("draining");
  await look();
  assertEquals(seen, [
    [200, "ready", false, 'compy_engine_state{model="demo",state="ready"} 1'],
    [503, "engine_failed", false, 'compy_engine_state{model="demo",state="failed"} 1'],
    [503, "engine_loading", true, 'compy_engine_state{model="demo",state="loading"} 1'],
    [200, "ready", false, 'compy_engine_state{model="demo",state="ready"} 1'],
    [503, "shutting_down", true, 'compy_engine_state{model="demo",state="draining"} 1'],
  ]);
});

Deno.test("loading engine: refuses with 503 and retry-after", async () => {
  const { app, engine } = open();
  engine.become("loading");
  const response = await app.request("/v1/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "demo", prompt: "a" }),
  });
  assertEquals([response.status, response.headers.get("retry-after")], [503, "1"]);
  assertEquals((await response.json()).error.code, "engine_unavailable");
});

Deno.test("request id: every response has its own id", async () => {
  const { app } = open({ apiKeys: ["k"] });
  const ids = new Set<string>();
  const bad = { authorization: "Bearer x" };
  const good = { authorization: "Bearer k" };
  for (const headers of [bad, good, { ...good, host: "evil.example" }]) {
    for (const path of ["/health", "/nothing", "/v1/chat/completions"]) {
      ids.add((await app.request(path, { headers })).headers.get("x-request-id")!);
    }
  }
  assertEquals(ids.size, 9);
  const own = await app.request("/nothing", { headers: { ...good, "x-request-id": "mine-1" } });
  assertEquals(own.headers.get("x-request-id"), "mine-1");
  for (const odd of ["a".repeat(256), "a b", "<script>"]) {
    ids.add(
      (await app.request("/health", { headers: { ...good, "x-request-id": odd } })).headers.get(
        "x-request-id",
      )!,
    );
  }
  assertEquals(ids.size, 12);
  assert([...ids].every((id) => /^req_[0-9a-f]{32}$/.test(id)));
});
