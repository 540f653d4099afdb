import { assert, assertEquals } from "@std/assert";
import { type AppOptions, createApp } from "../app.ts";
import { FakeEngine } from "../testing.ts";

const ORIGIN = "https://app.example";

function open(options: AppOptions) {
  const app = createApp(new FakeEngine(), options);
  /** Returns status and headers of a request; the body is JSON with a text to tokenize. */
  const ask = async (method: string, path: string, headers: Record<string, string> = {}) => {
    const body = method === "POST" ? JSON.stringify({ content: "a" }) : undefined;
    const all: Record<string, string> = body === undefined
      ? headers
      : { "content-type": "application/json", ...headers };
    const response = await app.request(path, { method, headers: all, body });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  return { app, ask };
}

const preflight = (origin: string) => ({
  origin,
  "sec-fetch-site": "cross-site",
  "access-control-request-method": "POST",
  "access-control-request-headers": "authorization,content-type",
});

Deno.test("cors: pages of an allowed origin pass preflight, key and site check, and can read refusals", async () => {
  const { ask } = open({ apiKeys: ["secret"], corsOrigins: [ORIGIN] });
  const before = await ask("OPTIONS", "/tokenize", preflight(ORIGIN));
  assertEquals(before.status, 204);
  assertEquals(before.headers.get("access-control-allow-origin"), ORIGIN);
  assertEquals(before.headers.get("access-control-allow-methods"), "GET,POST,DELETE");
  assertEquals(before.headers.get("access-control-allow-headers"), "authorization,content-type");
  assertEquals(before.headers.get("access-control-allow-credentials"), null);
  const page = { origin: ORIGIN, "sec-fetch-site": "cross-site" };
  const cases = [
    [{ authorization: "Bearer secret" }, 200],
    [{}, 401],
    [{ authorization: "Bearer secret", "content-type": "image/png" }, 415],
  ] as const;
  for (const [headers, status] of cases) {
    const answer = await ask("POST", "/tokenize", { ...page, ...headers });
    assertEquals(answer.status, status);
    assertEquals(answer.headers.get("access-control-allow-origin"), ORIGIN);
    assertEquals(
      answer.headers.get("access-control-expose-headers"),
      "x-request-id,retry-after,x-compy-warning",
    );
    assert(answer.headers.get("vary")?.includes("Origin"));
  }
});

Deno.test("cors: other origins get no header, no preflight and no change", async () => {
  for (const options of [{ corsOrigins: [ORIGIN] }, {}]) {
    const { ask } = open(options);
    for (const origin of ["https://evil.example", "http://app.example", "https://app.example:444", "null"]) {
      const refused = await ask("POST", "/tokenize", { origin, "sec-fetch-site": "cross-site" });
      assertEquals(refused.status, 403);
      const before = await ask("OPTIONS", "/tokenize", preflight(origin));
      assertEquals([before.status, before.headers.get("allow")], [204, "POST, OPTIONS"]);
      const read = await ask("GET", "/v1/models", { origin });
      for (const { headers } of [refused, before, read]) {
        assertEquals(headers.get("access-control-allow-origin"), null);
      }
    }
  }
});

Deno.test("cors: without keys, an allowed origin and this server's pages pass", async () => {
  const { ask } = open({ corsOrigins: [ORIGIN] });
  assertEquals(
    (await ask("POST", "/tokenize", { origin: ORIGIN, "sec-fetch-site": "cross-site" })).status,
    200,
  );
  assertEquals(
    (await ask("POST", "/tokenize", { host: "localhost:1", origin: "http://localhost:1" })).status,
    200,
  );
});

Deno.test("open health: only /health needs no key, as the OpenAPI document says", async () => {
  const { ask } = open({ apiKeys: ["secret"], openHealth: true });
  assertEquals((await ask("GET", "/health")).status, 200);
  assertEquals((await ask("GET", "/health", { authorization: "Bearer secret" })).status, 200);
  assertEquals((await ask("GET", "/health/")).status, 200); // the same route as without the slash
  for (const path of ["/ready", "/metrics", "/v1/models", "/health/x", "/healthy"]) {
    assertEquals((await ask("GET", path)).status, 401, path);
  }
  assertEquals((await ask("POST", "/health")).status, 405);
  const { paths } = JSON.parse((await ask("GET", "/doc", { "x-api-key": "secret" })).text);
  assertEquals([paths["/health"].get.security, paths["/health"].get.responses[401]], [[], undefined]);
  assertEquals([paths["/ready"].get.security, "401" in paths["/ready"].get.responses], [undefined, true]);
});

Deno.test("security headers: stop browsers from guessing an answer's type or embedding it", async () => {
  const { ask } = open({ apiKeys: ["secret"] });
  for (const key of ["secret", "wrong"]) {
    const { headers } = await ask("GET", "/v1/models", { "x-api-key": key });
    assertEquals(headers.get("x-content-type-options"), "nosniff");
    assertEquals(headers.get("content-security-policy"), "default-src 'none'; frame-ancestors 'none'");
  }
});

Deno.test("path prefix: applies to every path, the OpenAPI document and the page; paths without it are 404", async () => {
  const { ask } = open({
    pathPrefix: "/a/llm",
    apiKeys: ["secret"],
    openHealth: true,
    corsOrigins: [ORIGIN],
  });
  const key = { "x-api-key": "secret" };
  for (const path of ["/v1/models", "/v1/models/demo", "/metrics", "/health", "/ready"]) {
    assertEquals((await ask("GET", `/a/llm${path}`, key)).status, 200, path);
    const outside = await ask("GET", path, key);
    assertEquals(outside.status, 404, path);
    assertEquals(
      JSON.parse(outside.text).error.message,
      `Unknown path "${path}"; GET /a/llm/doc lists the known ones`,
    );
  }
  const document = JSON.parse((await ask("GET", "/a/llm/doc", key)).text);
  assertEquals(document.servers, [{ url: "/a/llm" }]);
  assert("/v1/models" in document.paths);
  for (const path of ["/a/llmx/health", "/a/health", "//a/llm/health", "/A/llm/health"]) {
    assertEquals((await ask("GET", path, key)).status, 404, path);
  }
  // The page uses relative paths, so it is redirected to a trailing slash.
  const page = await ask("GET", "/a/llm");
  assertEquals([page.status, page.headers.get("location")], [308, "/a/llm/"]);
  const home = await ask("GET", "/a/llm/");
  assert(home.headers.get("content-type")!.startsWith("text/html"));
  assertEquals((await ask("GET", "/a/llm/page/app.js")).status, 200);
  // The other guards still apply below the prefix.
  assertEquals((await ask("GET", "/a/llm/health")).status, 200);
  assertEquals((await ask("GET", "/a/llm/ready")).status, 401);
  assertEquals((await ask("GET", "/a/llm/ready", { ...key, host: "evil.example" })).status, 403);
  assertEquals(
    (await ask("POST", "/a/llm/tokenize", { ...key, origin: "https://evil.example" })).status,
    403,
  );
  assertEquals((await ask("POST", "/a/llm/tokenize", { ...key, origin: ORIGIN })).status, 200);
  assertEquals((await ask("OPTIONS", "/a/llm/tokenize", preflight(ORIGIN))).status, 204);
  // Refusals name the full path of the request.
  const messages = {
    "/a/llm/tokenize": [405, 'Method GET is not allowed at "/a/llm/tokenize"; use POST'],
    "/a/llm/none": [404, 'Unknown path "/a/llm/none"; GET /a/llm/doc lists the known ones'],
  };
  for (const [path, wanted] of Object.entries(messages)) {
    const { status, text } = await ask("GET", path, key);
    assertEquals([status, JSON.parse(text).error.message], wanted);
  }
  // Metrics name routes without the prefix.
  assert((await ask("GET", "/a/llm/metrics", key)).text.includes('route="/v1/models",status="200"'));
});

Deno.test("site check: pages of other sites cannot load models, not even with a GET", async () => {
  const { ask } = open({ corsOrigins: [ORIGIN], pathPrefix: "/llm" });
  for (const path of ["/llm/props", "/llm/tokenizer_info?model=demo"]) {
    for (const method of ["GET", "HEAD"]) {
      assertEquals((await ask(method, path)).status, 200);
      assertEquals((await ask(method, path, { "sec-fetch-site": "same-origin" })).status, 200);
      assertEquals((await ask(method, path, { "sec-fetch-site": "cross-site", origin: ORIGIN })).status, 200);
      assertEquals((await ask(method, path, { "sec-fetch-site": "cross-site" })).status, 403);
      assertEquals((await ask(method, path, { origin: "https://evil.example" })).status, 403);
    }
  }
  assertEquals((await ask("GET", "/llm/slots", { "sec-fetch-site": "cross-site" })).status, 200);
});
