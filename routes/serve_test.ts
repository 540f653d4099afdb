import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import OpenAI from "openai";
import { affordableConnections, repeatedPress, serveHttp } from "./serve.ts";
import { FakeEngine } from "./testing.ts";
import { until, withServer } from "./testing_server.ts";

const messages = [{ role: "user" as const, content: "Hi" }];
const chat = { model: "demo", messages, ignore_eos: true };
const endless = { contextLength: 1_000_000, tokenMs: 2 };

Deno.test("serve: a client that leaves frees its slot in every phase: queue, prefill, streaming and waiting", async () => {
  await withServer({ ...endless, slots: 1 }, async ({ client, engine, post }) => {
    const idle = () => engine.stats().running === 0 && engine.stats().waiting === 0;
    const stream = await client.chat.completions.create({ ...chat, stream: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
    await until(idle);

    for (const stream of [true, false]) {
      const abort = new AbortController();
      const queued = new AbortController();
      const running = post("/v1/chat/completions", { ...chat, stream }, { signal: abort.signal });
      await until(() => engine.stats().running === 1);
      const waiting = post("/v1/chat/completions", { ...chat, stream, n: 2 }, { signal: queued.signal });
      await until(() => engine.stats().waiting === 2);
      queued.abort();
      await assertRejects(() => waiting);
      await until(() => engine.stats().waiting === 0);
      assertEquals(engine.stats().running, 1);
      abort.abort();
      await assertRejects(async () => await (await running).text());
      await until(idle);
    }

    const prefill = new AbortController();
    const long = [{ role: "user", content: "x".repeat(100_000) }];
    const request = post("/v1/chat/completions", { ...chat, messages: long }, { signal: prefill.signal });
    await until(() => engine.stats().running === 1);
    prefill.abort();
    await assertRejects(() => request);
    await until(idle);
  });
});

Deno.test("serve: a client that reads nothing is disconnected, and its slot is freed", async () => {
  const limits = { unreadBytes: 4096, stallMs: 50 };
  const options = { contextLength: 1_000_000, slots: 1, limits };
  await withServer(options, async ({ engine, base, client }) => {
    const { hostname, port } = new URL(base);
    const connection = await Deno.connect({ hostname, port: Number(port) });
    const body = JSON.stringify({ ...chat, stream: true });
    const head =
      `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}\r\ncontent-type: application/json\r\n`;
    await connection.write(new TextEncoder().encode(`${head}content-length: ${body.length}\r\n\r\n${body}`));
    await until(() => engine.stats().running === 1);
    await until(() => engine.stats().running === 0);
    assert(engine.stats().generatedTokens < 100_000);
    const next = await client.chat.completions.create({ model: "demo", messages });
    assertEquals(next.choices[0].finish_reason, "stop");
    connection.close();
  });
});

Deno.test("serve: a slow request does not delay another, and streams are sent token by token", async () => {
  await withServer(endless, async ({ client, base }) => {
    const headers = { "content-type": "application/json", "accept-encoding": "gzip, br" };
    const body = JSON.stringify({ ...chat, stream: true });
    const response = await fetch(`${base}/v1/chat/completions`, { method: "POST", headers, body });
    assertEquals(response.headers.get("content-encoding"), null);
    assertStringIncludes(response.headers.get("content-type")!, "text/event-stream");
    assert(response.headers.get("x-request-id"));
    const reader = response.body!.getReader();
    await reader.read();
    const other = await client.chat.completions.create({ model: "demo", messages });
    assertEquals(other.choices[0].finish_reason, "stop");
    await reader.cancel();
  });
});

Deno.test("serve: a silent stream gets its status line and comments", async () => {
  const limits = { headersAfterMs: 5, keepAliveMs: 5 };
  await withServer({ tokenMs: 60, limits }, async ({ client, post }) => {
    const response = await post("/v1/chat/completions", {
      model: "demo",
      messages,
      stream: true,
      max_tokens: 1,
    });
    assertStringIncludes(await response.text(), ": waiting\n\n");
    const stream = await client.chat.completions.create({
      model: "demo",
      messages,
      stream: true,
      max_tokens: 1,
    });
    const chunks = await Array.fromAsync(stream);
    assertEquals(chunks.map(({ choices }) => choices[0].delta.content ?? "").join(""), "H");
  });
});

Deno.test("shutdown: the server is not ready, refuses new requests, and ends running ones with a finish or error event", async () => {
  const engine = new FakeEngine({ ...endless, slots: 16 });
  const server = serveHttp(engine, { signals: false });
  const base = `http://127.0.0.1:${server.port}`;
  const post = (body: unknown) => {
    const headers = { "content-type": "application/json" };
    return fetch(`${base}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
  };
  const streams = await Promise.all(Array.from({ length: 8 }, () => post({ ...chat, stream: true })));
  const short = await post({ model: "demo", messages, stream: true });
  const whole = post(chat);
  await until(() => engine.stats().running === 10);
  assertEquals((await fetch(`${base}/ready`)).status, 200);

  const started = performance.now();
  const stopped = server.shutdown(500);
  const ready = await fetch(`${base}/ready`);
  assertEquals(ready.status, 503);
  assertEquals((await ready.json()).error.code, "shutting_down");
  assertEquals((await fetch(`${base}/health`)).status, 200);
  const refused = await post(chat);
  assertEquals(refused.status, 503);
  assert(refused.headers.get("retry-after"));
  await refused.text();
  await (await fetch(`${base}/health`)).text();

  for (const stream of streams) {
    const last = (await stream.text()).trimEnd().split("\n\n").at(-1)!;
    assertEquals(JSON.parse(last.replace("data: ", "")).error.code, "shutting_down");
  }
  assertStringIncludes(await short.text(), '"finish_reason":"stop"');
  const cut = await whole;
  assertEquals([cut.status, (await cut.json()).error.code], [503, "shutting_down"]);
  await stopped;
  await server.finished;
  assert(performance.now() - started < 1500);
});

Deno.test("shutdown: SIGTERM stops the server within its drain time", async () => {
  const engine = new FakeEngine(endless);
  const server = serveHttp(engine, { drainMs: 30 });
  const client = new OpenAI({
    baseURL: `http://127.0.0.1:${server.port}/v1`,
    apiKey: "unused",
    maxRetries: 0,
  });
  const stream = await client.chat.completions.create({ ...chat, stream: true });
  Deno.kill(Deno.pid, "SIGTERM");
  await assertRejects(() => Array.fromAsync(stream), OpenAI.APIError, "shutting down");
  await server.finished;
});

Deno.test("repeatedPress: one Ctrl-C may arrive twice, and every later press counts", () => {
  const presses = (...times: number[]) => {
    const isRepeated = repeatedPress();
    return times.map((time) => !isRepeated("SIGINT", time)).reduce((sum, counts) => sum + Number(counts), 0);
  };
  assertEquals(presses(0), 1);
  assertEquals(presses(0, 0.3), 1);
  assertEquals(presses(0, 0.3, 100, 100.3), 3);
  assertEquals(presses(0, 100), 2);
  assertEquals(presses(0, 250), 2);
  assertEquals(presses(0, 0.3, 30), 2);
  const isRepeated = repeatedPress();
  assertEquals([isRepeated("SIGTERM", 0), isRepeated("SIGINT", 1)], [false, false]);
});

Deno.test("shutdown: a second signal, 100 ms after the first, ends the drain", async () => {
  const engine = new FakeEngine(endless);
  const server = serveHttp(engine, { drainMs: 60_000 });
  const client = new OpenAI({
    baseURL: `http://127.0.0.1:${server.port}/v1`,
    apiKey: "unused",
    maxRetries: 0,
  });
  const stream = await client.chat.completions.create({ ...chat, stream: true });
  const started = performance.now();
  Deno.kill(Deno.pid, "SIGTERM");
  setTimeout(() => Deno.kill(Deno.pid, "SIGTERM"), 100);
  await assertRejects(() => Array.fromAsync(stream), OpenAI.APIError, "shutting down");
  await server.finished;
  assert(performance.now() - started < 10_000);
});

Deno.test("affordableConnections: reserves file descriptors for files; refuses too few descriptors and states both numbers", async () => {
  assertEquals(affordableConnections(10), 10);
  const served = async (descriptors: number) => {
    const code =
      `import { affordableConnections } from "./routes/serve.ts"; console.log(affordableConnections())`;
    const { stdout, stderr } = await new Deno.Command("sh", {
      args: ["-c", `ulimit -n ${descriptors}; exec "$0" eval -q '${code}'`, Deno.execPath()],
      env: { NO_COLOR: "1" },
    }).output();
    return new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  };
  const most = Number(await served(256));
  assert(most > 100 && most < 256 - 64, `${most}`);
  assertStringIncludes(await served(90), "free file descriptors: 64 are kept for files");
});

Deno.test("serve: an address that other machines can reach needs a key", () => {
  const engine = new FakeEngine();
  for (const host of ["0.0.0.0", "::", "192.168.0.1", "example.com"]) {
    assertThrows(() => serveHttp(engine, { host, signals: false }), Error, "needs an API key");
    assertThrows(() => serveHttp(engine, { host, signals: false, apiKeys: [] }), Error, "needs an API key");
  }
});

Deno.test("keys: with keys every route needs one, and different keys share no cached prompts", async () => {
  const paths = ["/health", "/ready", "/metrics", "/doc", "/v1/models", "/v1/models/demo", "/nothing"];
  await withServer({ apiKeys: ["first-key", "second-key"] }, async ({ engine, base, client, post }) => {
    for (const path of paths) {
      for (
        const authorization of [
          "",
          "Bearer",
          "Bearer wrong",
          "Bearer first-ke",
          "Basic first-key",
          "first-key",
        ]
      ) {
        const response = await fetch(base + path, { headers: { authorization } });
        assertEquals(response.status, 401, path);
        assertEquals((await response.json()).error.code, "invalid_api_key");
        assert(response.headers.get("x-request-id"));
      }
    }
    for (
      const path of ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"]
    ) {
      assertEquals((await post(path, {})).status, 401);
    }
    await client.chat.completions.create({ model: "demo", messages });
    await client.withOptions({ apiKey: "second-key" }).chat.completions.create({ model: "demo", messages });
    await assertRejects(
      () => client.withOptions({ apiKey: "third" }).models.list(),
      OpenAI.AuthenticationError,
    );
    const salts = engine.requests.map(({ cacheSalt }) => cacheSalt);
    assert(salts[0] && salts[1] && salts[0] !== salts[1]);
    const formed: [string, object][] = [
      ["/apply-template", { messages, response_format: { type: "json_object" } }],
      ["/completion", { prompt: "a", json_schema: {} }],
      ["/api/chat", { model: "demo", messages, format: "json" }],
      [
        "/v1/messages/count_tokens",
        { model: "demo", messages, output_format: { type: "json_schema", schema: {} } },
      ],
    ];
    for (const [path, body] of formed) {
      const response = await post(path, body, { headers: { authorization: `Bearer ${client.apiKey}` } });
      assertEquals([response.status, await response.text()].at(0), 200, path);
    }
    assertEquals(engine.checks.map((sender) => sender?.cacheSalt), formed.map(() => salts[0]));
  });
});

Deno.test("metrics: report the number of open connections", async () => {
  await withServer({}, async ({ base }) => {
    const { hostname, port } = new URL(base);
    const connections = async () => {
      const text = await (await fetch(`${base}/metrics`)).text();
      return Number(/^compy_connections (\d+)$/m.exec(text)![1]);
    };
    const before = await connections();
    const open = await Promise.all([1, 2, 3].map(() => Deno.connect({ hostname, port: Number(port) })));
    await until(async () => await connections() === before + 3);
    for (const connection of open) connection.close();
    await until(async () => await connections() === before);
  });
});

Deno.test("serve: refuses a Host header of another machine and allows no origin", async () => {
  await withServer({ allowedHosts: ["models.lan"] }, async ({ base }) => {
    const { hostname, port } = new URL(base);
    const status = async (host: string) => {
      const connection = await Deno.connect({ hostname, port: Number(port) });
      const request =
        `GET /health HTTP/1.1\r\nhost: ${host}\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n`;
      await connection.write(new TextEncoder().encode(request));
      const answer = await new Response(connection.readable).text();
      assert(!/access-control/i.test(answer));
      return Number(answer.split(" ")[1]);
    };
    for (
      const host of [
        "evil.example",
        `evil.example:${port}`,
        "127.0.0.1.evil.example",
        "localhost.evil",
        "10.0.0.1",
      ]
    ) {
      assertEquals(await status(host), 403, host);
    }
    for (
      const host of [
        "localhost",
        `127.0.0.1:${port}`,
        "[::1]",
        "a.localhost:1",
        "models.lan",
        "MODELS.LAN:80",
      ]
    ) {
      assertEquals(await status(host), 200, host);
    }
  });
});
