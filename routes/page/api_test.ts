import { assertEquals, assertRejects } from "@std/assert";
import { adviceFor, Api, Failure, failureOf } from "./api.js";
import { readEvents } from "./sse.js";

const utf8 = new TextEncoder();

function stream(...parts: (string | Uint8Array)[]): ReadableStream<Uint8Array<ArrayBuffer>> {
  return ReadableStream.from(
    parts.map((part) => new Uint8Array(typeof part === "string" ? utf8.encode(part) : part)),
  );
}

Deno.test("readEvents: yields the same events however the stream is split", async () => {
  const text = ': hi\n\ndata: {"a":"ä🙂"}\n\nevent: end\r\ndata: 1\r\ndata: 2\r\n\r\ndata:x\n\ndata: cut';
  const bytes = utf8.encode(text);
  const expected = [
    { event: "message", data: '{"a":"ä🙂"}' },
    { event: "end", data: "1\n2" },
    { event: "message", data: "x" },
  ];
  for (let size = 1; size <= bytes.length; size++) {
    const parts = Array.from(
      { length: Math.ceil(bytes.length / size) },
      (_, i) => bytes.slice(i * size, (i + 1) * size),
    );
    assertEquals(await Array.fromAsync(readEvents(stream(...parts))), expected);
  }
});

Deno.test("readEvents: stopping early releases the connection", async () => {
  let cancelled = false;
  const endless = new ReadableStream<Uint8Array<ArrayBuffer>>({
    pull: (controller) => controller.enqueue(utf8.encode("data: 1\n\n")),
    cancel: () => void (cancelled = true),
  });
  for await (const { data } of readEvents(endless)) {
    assertEquals(data, "1");
    break;
  }
  assertEquals(cancelled, true);
});

Deno.test("failureOf: distinguishes a wrong key, a full queue, a wrong request and a server failure", () => {
  const body = { error: { message: "No", code: "queue_full", param: null } };
  assertEquals(failureOf(429, body, "7").kind, "wait");
  assertEquals(failureOf(429, body, "7").retrySeconds, 7);
  assertEquals(failureOf(429, body, null).retrySeconds, 2);
  assertEquals(failureOf(429, body, "0").retrySeconds, 1);
  assertEquals(failureOf(503, body, "1").kind, "wait");
  assertEquals(failureOf(503, body, null).kind, "failed");
  assertEquals(failureOf(401, body, null).kind, "key");
  assertEquals(failureOf(400, body, null).kind, "refused");
  assertEquals(failureOf(500, undefined, null).message, "The server answered with status 500");
});

Deno.test("adviceFor: has advice for every failure", () => {
  for (const kind of ["network", "cut", "key", "wait", "refused", "failed", "stream"] as const) {
    const advice = adviceFor(new Failure(kind, "x"));
    assertEquals(/^[A-Z].*\.$/.test(advice), true, advice);
  }
  assertEquals(adviceFor(new Failure("wait", "x"), 3), "Sent again in 3 s; Stop gives up.");
});

async function withAnswers(
  answer: (request: Request) => Response | Promise<Response>,
  test: (api: Api) => Promise<void>,
) {
  const server = Deno.serve(
    { port: 0, hostname: "127.0.0.1", onListen() {}, onError: () => new Response() },
    answer,
  );
  try {
    await test(new Api(`http://127.0.0.1:${server.addr.port}/some/prefix/`));
  } finally {
    await server.shutdown();
  }
}

const read = (api: Api) =>
  Array.fromAsync(api.stream("x", { body: {}, signal: new AbortController().signal }));

Deno.test("Api: requests stay below the page's own path and carry the key", async () => {
  await withAnswers((request) => {
    return Response.json([new URL(request.url).pathname, request.headers.get("authorization")]);
  }, async (api) => {
    assertEquals(await api.json("v1/models"), ["/some/prefix/v1/models", null]);
    api.key = "secret";
    assertEquals(await api.json("v1/models"), ["/some/prefix/v1/models", "Bearer secret"]);
  });
});

Deno.test("Api.stream: ends with [DONE], and otherwise throws a failure that says why it ended", async () => {
  const answers = {
    whole: () => stream('data: {"a":1}\n\n', "data: [DONE]\n\n"),
    cut: () => stream('data: {"a":1}\n\n'),
    failed: () =>
      stream('data: {"a":1}\n\ndata: {"error":{"message":"It broke","code":"engine_failed"}}\n\n'),
    lost: () =>
      new ReadableStream<Uint8Array<ArrayBuffer>>({
        start: (controller) => controller.enqueue(utf8.encode('data: {"a":1}\n\n')),
        pull: () => new Promise((_, reject) => setTimeout(() => reject(new Error("gone")), 20)),
      }),
  };
  for (const [name, body] of Object.entries(answers)) {
    await withAnswers(() => new Response(body()), async (api) => {
      if (name === "whole") return assertEquals(await read(api), [{ a: 1 }]);
      const error = await assertRejects(() => read(api), Failure);
      assertEquals(error.kind, name === "failed" ? "stream" : "cut");
      if (name === "failed") assertEquals([error.message, error.code], ["It broke", "engine_failed"]);
    });
  }
});

Deno.test("Api: an unreachable server is a network failure, and a stopped request is not a failure", async () => {
  const gone = Deno.listen({ port: 0, hostname: "127.0.0.1" });
  const { port } = gone.addr as Deno.NetAddr;
  gone.close();
  const api = new Api(`http://127.0.0.1:${port}/`);
  assertEquals((await assertRejects(() => api.json("health"), Failure)).kind, "network");
  const signal = AbortSignal.abort(new DOMException("Stopped", "AbortError"));
  await assertRejects(() => api.json("health", { signal }), DOMException, "Stopped");
});
