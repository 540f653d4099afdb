import { assert, assertEquals } from "@std/assert";
import { BatchService } from "../../jobs/service/service.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { createApp } from "../app.ts";
import { digestOf, KeyRing, type KeyScope } from "../access/keys.ts";
import { FakeEngine } from "../testing.ts";
import { inDataFolder } from "../testing_batches.ts";

const named = (name: string, key: string, scope?: KeyScope) => ({ name, digest: digestOf(key), scope });
const bothHeaders = (key: string): Record<string, string>[] => [
  { authorization: `Bearer ${key}` },
  { "x-api-key": key },
];

Deno.test("metrics key: reads /metrics and gets 403 on every other route", async () => {
  await inDataFolder(async (path) => {
    const engine = new FakeEngine();
    const batches = await BatchService.open({
      path,
      parallel: 1,
      lineLimits: TEST_LIMITS,
      settings: {},
      execute: () => Promise.reject(new Error("no line may run")),
      report: () => {},
    });
    try {
      const apiKeys = new KeyRing(["full"], [named("prometheus", "m", "metrics")]);
      const app = createApp(engine, { apiKeys, batches });
      const routes = app.routes.filter(({ method, path }) => method !== "ALL" && !path.includes("*"));
      const isPage = (path: string) => path === "/" || path.startsWith("/page/");
      const guarded = routes.filter(({ path }) => !isPage(path) && path !== "/metrics");
      assert(guarded.length > 30, `${guarded.length} routes`);
      const asked = [
        ...guarded.map(({ method, path }) => [method, path.replace(/:\w+(\{.*\})?/g, "demo")]),
        ["GET", "/no/such/path"],
        ["DELETE", "/v1/models"],
      ];
      for (const [method, path] of asked) {
        for (const headers of bothHeaders("m")) {
          const answer = await app.request(path, { method, headers });
          const { error } = await answer.json();
          assertEquals(answer.status, 403, `${method} ${path}`);
          // Ollama's format has the message as a text.
          assertEquals(
            error.message ?? error,
            'The API key "prometheus" may only read /metrics; send another key',
          );
        }
        const wrong = await app.request(path, { method, headers: bothHeaders("wrong")[0] });
        assertEquals(wrong.status, 401, `${method} ${path}`);
      }
      assertEquals(engine.requests, []);
      for (const headers of [...bothHeaders("m"), ...bothHeaders("full")]) {
        const answer = await app.request("/metrics", { headers });
        assertEquals(answer.status, 200);
        assert((await answer.text()).includes("compy_requests_running"));
      }
      assertEquals((await app.request("/metrics")).status, 401);
    } finally {
      await batches.close();
    }
  });
});

Deno.test("metrics key: opens /metrics below a path prefix, and nothing else there", async () => {
  const apiKeys = new KeyRing([], [named("prometheus", "m", "metrics")]);
  const app = createApp(new FakeEngine(), { apiKeys, pathPrefix: "/llm" });
  const [headers] = bothHeaders("m");
  assertEquals((await app.request("/llm/metrics", { headers })).status, 200);
  assertEquals((await app.request("/llm/health", { headers })).status, 403);
});

Deno.test("metrics key: a key's scope changes when the key file is read again", () => {
  const ring = new KeyRing([], [named("a", "1")]);
  assertEquals(ring.admit("1")!.onlyPath, undefined);
  ring.named = [named("a", "1", "metrics")];
  assertEquals(ring.admit("1")!.onlyPath, "/metrics");
  ring.named = [named("a", "1", "all")];
  assertEquals(ring.admit("1")!.onlyPath, undefined);
});
