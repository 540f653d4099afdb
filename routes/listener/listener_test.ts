import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { DEFAULT_LIMITS } from "../core/context.ts";
import { RawClient, statusOf } from "../testing_raw.ts";
import { until, withServer } from "../testing_server.ts";
import { Listener } from "./listener.ts";

const encoder = new TextEncoder();
const messages = [{ role: "user", content: "Hi" }];
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const HEALTH = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

Deno.test("listener: closes connections that send no complete request in time", async () => {
  const limits = { headMs: 80, idleMs: 80, bodyMs: 80 };
  await withServer({ limits }, async ({ base, errors }) => {
    const connect = () => RawClient.connect(base);
    const [silent, head, slowHead, idle, body] = await Promise.all([0, 1, 2, 3, 4].map(connect));
    await head.send("GET /health HTTP/1.1\r\nhost: loc");
    await idle.send(HEALTH);
    await body.send(
      "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
    );
    const dripping = setInterval(() => slowHead.send("a"), 20);
    await slowHead.send("GET /");
    await Promise.all([silent, head, slowHead, body].map(({ closed }) => closed));
    clearInterval(dripping);
    assertEquals([silent.answer, statusOf(head), statusOf(slowHead), statusOf(body)], ["", 408, 408, 408]);
    assertStringIncludes(head.answer, '"code":"head_timeout"');
    assertEquals(statusOf(idle), 200);
    assertEquals(idle.closedAt, undefined); // stays open one second longer than announced
    await idle.closed;
    assertEquals(errors, []);
  });
});

Deno.test("listener: above the maximum, a new connection replaces a silent one", async () => {
  let silent: RawClient[] = [];
  await withServer({ maxConnections: 8 }, async ({ base, errors }) => {
    silent = await Promise.all(Array.from({ length: 40 }, () => RawClient.connect(base)));
    for (const client of silent.slice(0, 20)) await client.send("POST /v1/files HTTP/1.1\r\nhost");
    for (let n = 0; n < 5; n++) {
      const response = await fetch(`${base}/health`);
      assertEquals([response.status, await response.json()], [200, { status: "ok" }]);
    }
    assert(silent.filter(({ closedAt }) => closedAt !== undefined).length >= 32);
    assertEquals(errors, []);
  });
  // The server was stopped while all its places were taken.
  await Promise.all(silent.map(({ closed }) => closed));
});

Deno.test("listener: while all connections wait for answers, new connections wait and none is lost", async () => {
  const options = { maxConnections: 4, slots: 4, tokenMs: 5 };
  await withServer(options, async ({ post, engine }) => {
    const body = { model: "demo", messages };
    const answers = await Promise.all(
      Array.from({ length: 24 }, async () => (await post("/v1/chat/completions", body)).json()),
    );
    const texts = answers.map(({ choices }) => choices[0].message.content);
    assertEquals(new Set(texts), new Set(["Hello, wörld 🙂!"]));
    assertEquals(engine.requests.length, 24);
  });
});

Deno.test("listener: a cut body is a 400, whether the connection can still be answered or not", async () => {
  await withServer({}, async ({ base, engine, errors }) => {
    const head =
      "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    const bodies = [
      'content-length: 100\r\n\r\n{"model":"demo"',
      'transfer-encoding: chunked\r\n\r\nff\r\n{"model":"demo"',
    ];
    for (const body of bodies) {
      const client = await RawClient.connect(base);
      await client.send(head + body);
      await client.closeWrite();
      await client.closed;
      assertEquals(statusOf(client), 400);
      assertStringIncludes(client.answer, '"code":"incomplete_body"');
      assertStringIncludes(client.answer.toLowerCase(), "connection: close");

      const gone = await RawClient.connect(base);
      await gone.send(head + body);
      gone.close();
      await gone.closed;
    }
    const { status } = await fetch(`${base}/health`).then(async (r) => (await r.body!.cancel(), r));
    assertEquals([status, engine.requests.length, errors], [200, 0, []]);
  });
});

Deno.test("listener: requires one Host, and answers invalid requests with a 4xx in OpenAI's format", async () => {
  await withServer({}, async ({ base }) => {
    const cases: [string, number, string][] = [
      ["GET /health HTTP/1.1\r\n\r\n", 400, "invalid_host"],
      ["GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", 400, "invalid_host"],
      ["GET /health HTTP/1.1\r\nhost: a b\r\n\r\n", 400, "invalid_host"],
      ["GET /health HTTP/1.1\r\nhost: localhost@evil.example\r\n\r\n", 400, "invalid_host"],
      ["NONSENSE\r\n\r\n", 400, "invalid_request"],
      ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid_request"],
      [
        `GET /health HTTP/1.1\r\nhost: localhost\r\nx: ${"a".repeat(200_000)}\r\n\r\n`,
        431,
        "headers_too_large",
      ],
    ];
    for (const [request, status, code] of cases) {
      const client = await RawClient.connect(base);
      await client.send(request);
      await client.closeWrite().catch(() => {});
      await client.closed;
      assertEquals(statusOf(client), status, request.slice(0, 60));
      const body = JSON.parse(client.answer.split("\r\n\r\n")[1].replace(/^[0-9a-f]+\r\n/, ""));
      assertEquals([body.error.code, body.error.param], [code, null]);
      assertMatch(client.answer, /x-request-id: req_/);
    }
    const old = await RawClient.connect(base);
    await old.send("GET /health HTTP/1.0\r\n\r\n");
    await old.closed;
    assertEquals(statusOf(old), 200);
    const absolute = await RawClient.connect(base);
    await absolute.send(
      "GET http://localhost/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    await absolute.closed;
    assertEquals(statusOf(absolute), 200);
  });
});

Deno.test("listener: answers pipelined requests in order, up to a limit", async () => {
  await withServer({}, async ({ base, engine }) => {
    const request = (path: string, close = "") => `GET ${path} HTTP/1.1\r\nhost: localhost\r\n${close}\r\n`;
    const polite = await RawClient.connect(base);
    await polite.send(request("/health") + request("/nothing") + request("/ready", "connection: close\r\n"));
    await polite.closed;
    assertEquals(polite.answer.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200", "HTTP/1.1 404", "HTTP/1.1 200"]);

    const body = JSON.stringify({ model: "demo", messages, max_tokens: 1 });
    const post =
      `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n` +
      `content-length: ${body.length}\r\n\r\n${body}`;
    const greedy = await RawClient.connect(base);
    await greedy.send(post.repeat(200));
    await greedy.closed;
    assertEquals(engine.requests.length, 32);
    const statuses = greedy.answer.match(/HTTP\/1\.1 \d+/g);
    assertEquals(statuses, [...Array(32).fill("HTTP/1.1 200"), "HTTP/1.1 429"]);
    const last = greedy.answer.split("HTTP/1.1 429")[1];
    assertStringIncludes(last, '"code":"too_many_pipelined"');
    assertMatch(last, /retry-after: 1\r\n/i);
    assertMatch(last, /connection: close\r\n/i);
  });
});

Deno.test("listener: answers a malformed request after the requests before it", async () => {
  await withServer({}, async ({ base, engine, errors }) => {
    const body = JSON.stringify({ model: "demo", messages, max_tokens: 1 });
    const head =
      "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    const post = `${head}content-length: ${body.length}\r\n\r\n${body}`;
    const chunked = `${head}transfer-encoding: chunked\r\n\r\n`;
    const part = `${body.length.toString(16)}\r\n${body}\r\n`;
    const cases = [
      ["a size that is not a number", `${chunked}zz\r\n`, "invalid_body"],
      ["a size that is too large", `${chunked}${"f".repeat(17)}\r\n`, "invalid_body"],
      ["a chunk longer than its size", `${chunked}1\r\n${body}\r\n`, "invalid_body"],
      ["a malformed second chunk", `${chunked}${part}-1\r\n`, "invalid_body"],
      ["a malformed request line", "NONSENSE\r\n\r\n", "invalid_request"],
    ];
    for (const [what, request, code] of cases) {
      for (const before of [0, 2]) {
        const client = await RawClient.connect(base);
        await client.send(post.repeat(before) + request);
        await client.closed;
        const statuses = client.answer.match(/HTTP\/1\.1 \d+/g);
        assertEquals(statuses, [...Array(before).fill("HTTP/1.1 200"), "HTTP/1.1 400"], what);
        assertStringIncludes(client.answer, `"code":"${code}"`);
      }
    }
    assertEquals([engine.requests.length, errors], [2 * cases.length, []]);
  });
});

Deno.test("listener: cuts an unread answer after a time limit, but not one that is read slowly", async () => {
  const large = new Uint8Array(16 << 20);
  const cancelled: unknown[] = [];
  const handle = ({ url }: Request) => {
    if (url.endsWith("/whole")) return new Response(large);
    let sent = 0;
    return new Response(
      new ReadableStream({
        pull(controller) {
          controller.enqueue(large.subarray(0, 1 << 20));
          if (++sent === 16) controller.close();
        },
        cancel: (reason) => void cancelled.push(reason.code),
      }),
    );
  };
  const limits = { ...DEFAULT_LIMITS, stallMs: 300 };
  const errors: unknown[] = [];
  const onError = (error: unknown) => errors.push(error);
  const options = { address: { hostname: "127.0.0.1", port: 0 }, maxConnections: 8, limits, handle, onError };
  const listener = new Listener(options);
  const { hostname, port } = listener.address!;
  const buffer = new Uint8Array(1 << 20);
  async function fetched(path: string, pauseMs: number, everyMs: number): Promise<number> {
    const tcp = await Deno.connect({ hostname, port });
    await tcp.write(encoder.encode(`GET ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`));
    await sleep(pauseMs);
    let read = 0;
    try {
      for (let n = await tcp.read(buffer); n !== null; n = await tcp.read(buffer)) {
        read += n;
        await sleep(everyMs);
      }
    } catch {
      // The connection was reset.
    }
    tcp.close();
    return read;
  }
  for (const path of ["/whole", "/stream"]) {
    assert(await fetched(path, 1200, 0) < large.length, path);
    assert(await fetched(path, 0, 5) > large.length, path);
  }
  await until(() => listener.connections === 0);
  assertEquals([cancelled, errors], [["client_closed_request"], []]);
  await listener.stop(0);
});

Deno.test("listener: does not cut a long answer, whole or streamed, however quiet", async () => {
  const limits = { headMs: 50, idleMs: 50, stallMs: 50, bodyMs: 50 };
  await withServer({ limits, tokenMs: 400, reply: () => "abc" }, async ({ client, errors }) => {
    const body = { model: "demo", messages: [{ role: "user" as const, content: "Hi" }] };
    const [whole, chunks] = await Promise.all([
      client.chat.completions.create(body),
      client.chat.completions.create({ ...body, stream: true }).then((stream) => Array.fromAsync(stream)),
    ]);
    assertEquals(whole.choices[0].message.content, "abc");
    assertEquals(chunks.map(({ choices }) => choices[0].delta.content ?? "").join(""), "abc");
    assertEquals(errors, []);
  });
});

Deno.test("listener: waits while file descriptors are missing, reports the shortage once, and answers all clients later", async () => {
  const code = `import { Listener } from "./routes/listener/listener.ts";
    import { DEFAULT_LIMITS } from "./routes/core/context.ts";
    const options = { address: { hostname: "127.0.0.1", port: 0 }, maxConnections: 1000, limits: DEFAULT_LIMITS };
    const handle = () => new Response("here");
    const onError = (error) => console.log(error.message);
    console.log(new Listener({ ...options, handle, onError }).address.port);`;
  const child = new Deno.Command("sh", {
    args: ["-c", `ulimit -n 64; exec "$0" eval -q '${code}'`, Deno.execPath()],
    stdin: "null",
    stdout: "piped",
  }).spawn();
  const output = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const base = `http://127.0.0.1:${(await output.read()).value!.trim()}`;
  await sleep(1000); // Deno itself opens files in its first moments
  const silent = await Promise.all(Array.from({ length: 150 }, () => RawClient.connect(base)));
  for (let n = 0; n < 3; n++) assertEquals(await (await fetch(base)).text(), "here");
  for (const client of silent) client.close();
  await Promise.all(silent.map(({ closed }) => closed));
  assertEquals(await (await fetch(base)).text(), "here");
  child.kill("SIGTERM");
  let told = "";
  for (let part = await output.read(); !part.done; part = await output.read()) told += part.value;
  await child.status;
  assertMatch(told, /^No file descriptors are left with \d+ connections open; [^\n]*\n$/);
});

Deno.test("listener: data after a refused request reaches no other connection", async () => {
  await withServer({}, async ({ base }) => {
    for (let n = 0; n < 20; n++) {
      const broken = await RawClient.connect(base);
      await broken.send("NONSENSE\r\n\r\n");
      while (broken.answer === "") await sleep(1);
      // Uses the parser that the broken connection returned.
      const good = await RawClient.connect(base);
      await good.send("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: ");
      await sleep(5);
      await broken.send("y\r\n\r\nGET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n");
      await sleep(5);
      await good.send("1\r\n\r\n");
      await good.closed;
      assertEquals(good.answer.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200"]);
      broken.close();
      await broken.closed;
    }
  });
});
